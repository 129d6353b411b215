// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// part is what a listener of Envoy serves of a model.
type part struct {
	Model
	name        string
	secureTable string // the name of the route table for HTTPS
	// alone says that it is the only listener of the Service.
	alone bool
}

// tlsPorts are the ports to which TLS connections come: for HTTPS, and for backends that get what they have.
type tlsPorts struct{ https, passed map[uint32]bool }

func (m Model) tlsPorts() tlsPorts {
	ports := tlsPorts{map[uint32]bool{}, map[uint32]bool{}}
	for _, l := range m.HTTP {
		if l.TLS && len(l.Secrets) > 0 {
			ports.https[l.Port] = true
		}
	}
	for _, p := range m.Passthrough {
		if !p.Exclusive {
			ports.passed[p.Port] = true
		}
	}
	return ports
}

// needsSeveral reports whether one listener of Envoy would give connections to what another port is for.
func (m Model) needsSeveral(ports tlsPorts) bool {
	https := maps.Clone(ports.https)
	for _, port := range m.HTTPSPorts {
		https[port] = true
	}
	if len(https) > 1 || len(ports.passed) > 1 {
		return true
	}
	var served []Passthrough // with what is served at each port
	for _, l := range m.HTTP {
		if l.TLS && len(l.Secrets) > 0 {
			served = append(served, Passthrough{Hostnames: []string{l.Hostname}, Port: l.Port})
		}
	}
	for _, p := range m.Passthrough {
		if !p.Exclusive {
			served = append(served, p)
		}
	}
	return slices.ContainsFunc(m.Passthrough, func(p Passthrough) bool {
		return ports.has(p.Port) && slices.ContainsFunc(served, p.meets)
	})
}

// has reports whether connections come to a port.
func (ports tlsPorts) has(port uint32) bool { return ports.https[port] || ports.passed[port] }

// meets reports whether a connection to one port can have a server name of another one.
func (p Passthrough) meets(other Passthrough) bool {
	return p.Port != other.Port && slices.ContainsFunc(p.Hostnames, func(a string) bool {
		return slices.ContainsFunc(other.Hostnames, func(b string) bool { return overlap(orAll(a), orAll(b)) })
	})
}

// overlap reports whether a server name can be that of both hosts.
func overlap(a, b string) bool {
	if a == b {
		return true
	}
	_, below := widerOf(a, map[string]bool{b: true})
	_, above := widerOf(b, map[string]bool{a: true})
	return below || above
}

// parts divides a model by the listeners of Envoy: one, unless connections are to be told apart by their ports (ENV-39). Plain HTTP has
// the first one, with what is passed through at one port; each other port of TLS has its own.
func (m Model) parts(o Options) []part {
	ports := m.tlsPorts()
	if o.PerPort { // no connection comes to other ports
		m.Passthrough = slices.DeleteFunc(slices.Clone(m.Passthrough), func(p Passthrough) bool { return !ports.has(p.Port) })
	}
	if !o.PerPort || !m.needsSeveral(ports) {
		return []part{{m, listenerName, secureTable, true}}
	}
	first := &part{name: listenerName, secureTable: secureTable}
	own := map[uint32]*part{}
	add := func(port uint32) {
		name := fmt.Sprintf("%s-%d", listenerName, port)
		own[port] = &part{name: name, secureTable: name}
	}
	for port := range ports.https {
		add(port)
	}
	for port := range ports.passed {
		if len(ports.passed) > 1 && own[port] == nil {
			add(port)
		}
	}
	for _, l := range m.HTTP {
		to := first
		if l.TLS && own[l.Port] != nil {
			to = own[l.Port]
		}
		to.HTTP = append(to.HTTP, l)
	}
	for _, p := range m.Passthrough {
		to := own[p.Port]
		if to == nil {
			to = first
		}
		to.Passthrough = append(to.Passthrough, p)
	}
	all := []part{*first}
	for _, port := range slices.Sorted(maps.Keys(own)) {
		all = append(all, *own[port])
	}
	return all
}

// entry is one of the entries by which ports of the Service lead to a listener.
type entry struct {
	order int
	v2.EnvoyServiceListener
}

// The order of entries: what is for plain HTTP, HTTPS, and backends that get what TLS connections have.
const (
	entryPlain = iota
	entryHTTPS
	entryPassed
)

// entries have the ports of a part lead to its listener. Ports of plain HTTP and those of what is passed through have an entry each.
func (p part) entries(o Options) (all []entry) {
	add := func(order int, m Model) {
		if ports := portsOf(m, o); len(ports) > 0 {
			all = append(all, entry{order, v2.EnvoyServiceListener{
				Name: Shorten(o.Service.Name), Namespace: o.Service.Namespace, Ports: ports, Listener: p.name,
			}})
		}
	}
	switch {
	case p.name == listenerName:
		add(entryPlain, Model{HTTP: p.HTTP})
		add(entryPassed, Model{Passthrough: p.Passthrough})
	case len(p.HTTP) > 0:
		add(entryHTTPS, p.Model)
	default:
		add(entryPassed, p.Model)
	}
	return all
}

// servicesOf are the entries of all parts. A listener that is alone need not be named.
func servicesOf(all []part, o Options) (found []v2.EnvoyServiceListener) {
	if len(all) == 1 && all[0].alone {
		ports := portsOf(all[0].Model, o)
		if o.AlsoPort > 0 && !slices.Contains(ports, o.AlsoPort) {
			ports = append(ports, o.AlsoPort)
			slices.Sort(ports)
		}
		return []v2.EnvoyServiceListener{{Name: Shorten(o.Service.Name), Namespace: o.Service.Namespace, Ports: ports}}
	}
	var entries []entry
	for _, p := range all {
		entries = append(entries, p.entries(o)...)
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.order, b.order), slices.Compare(a.Ports, b.Ports)) })
	for _, e := range entries {
		found = append(found, e.EnvoyServiceListener)
	}
	return found
}
