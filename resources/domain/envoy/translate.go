// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// Translator translates the successive models of one CiliumEnvoyConfig, always with the same options. What has not changed
// since the last model is not translated again. The zero Translator is ready for use; it is not safe for concurrent use.
type Translator struct {
	hosts    cache[hostKey, *host]
	chains   cache[string, json.RawMessage]
	clusters cache[clusterKey, json.RawMessage]
}

// Translation is the configuration for a model.
type Translation struct {
	Spec v2.CiliumEnvoyConfigSpec
	// Empty says that there is no listener: nothing is to be written.
	Empty    bool
	Problems []Problem // in a fixed order
}

// cache keeps what the last and the current translation have used.
type cache[K comparable, V any] struct{ last, now map[K]V }

func (c *cache[K, V]) begin() { c.last, c.now = c.now, map[K]V{} }

// get returns a value that is still fresh, or makes it.
func (c *cache[K, V]) get(key K, fresh func(V) bool, translate func() (V, error)) (V, error) {
	if v, ok := c.now[key]; ok {
		return v, nil
	}
	v, ok := c.last[key]
	if !ok || !fresh(v) {
		var err error
		if v, err = translate(); err != nil {
			return v, err
		}
	}
	c.now[key] = v
	return v, nil
}

func always[V any](V) bool { return true }

// Translate translates a model.
func (t *Translator) Translate(m Model, o Options) (Translation, error) {
	t.hosts.begin()
	t.chains.begin()
	t.clusters.begin()
	var lost []Problem
	if o.Owners {
		m, lost = m.owned()
	}
	certificates := m.certificates()
	passed, problems := m.passthroughs(o, certificates)
	result := Translation{Problems: append(lost, problems...)}

	chains := o.chains(m, certificates, passed)
	if len(chains) == 0 {
		result.Empty = true
		return result, nil
	}
	listener, err := t.listener(m, o, chains)
	if err != nil {
		return result, err
	}
	resources := []json.RawMessage{listener}

	used := usage{}
	for _, to := range passed {
		used.add(to.backends...)
	}
	tables := m.tables(o)
	for _, table := range usedTables(m, certificates) {
		hosts := slices.SortedFunc(maps.Keys(tables), compareHosts)
		var encoded []json.RawMessage
		ignorePort := false
		for _, key := range hosts {
			if key.table != table {
				continue
			}
			ignorePort = ignorePort || o.FirstWins && key.port == 0 && strings.HasPrefix(key.hostname, "*.")
			h, _ := t.hosts.get(key, func(h *host) bool { return h.of.equal(tables[key]) }, func() (*host, error) {
				return o.translateHost(key, tables[key]), nil
			})
			result.Problems = append(result.Problems, h.problems...)
			if h.json != nil {
				encoded = append(encoded, h.json)
			}
			used.addHTTP(o, h.backends)
		}
		text, err := routeTable(table, encoded, ignorePort)
		if err != nil {
			return result, err
		}
		resources = append(resources, text)
	}
	clusters, err := t.encodeClusters(o, used)
	if err != nil {
		return result, err
	}
	for _, text := range append(resources, clusters...) {
		result.Spec.Resources = append(result.Spec.Resources, rawResource(text))
	}
	result.Problems = slices.Compact(result.Problems)
	result.Spec.Services = []v2.EnvoyServiceListener{{Name: Shorten(o.Service.Name), Namespace: o.Service.Namespace, Ports: portsOf(m, o)}}
	result.Spec.BackendServices = used.services()
	if o.HostNetwork != nil && len(o.HostNetwork.NodeSelector) > 0 {
		result.Spec.NodeSelector = &v2.LabelSelector{MatchLabels: o.HostNetwork.NodeSelector}
	}
	return result, nil
}

// hasPlain reports whether there is a listener of plain HTTP.
func (m Model) hasPlain() bool {
	return slices.ContainsFunc(m.HTTP, func(l Listener) bool { return !l.TLS })
}

// usedTables are the route tables that filter chains refer to.
func usedTables(m Model, certificates map[string][]Name) (names []string) {
	if m.hasPlain() {
		names = append(names, plainTable)
	}
	if len(certificates) > 0 {
		names = append(names, secureTable)
	}
	return names
}

// portsOf are the ports that lead to the listener.
func portsOf(m Model, o Options) (ports []int) {
	for _, l := range m.HTTP {
		ports = append(ports, int(l.Port))
	}
	for _, p := range m.Passthrough {
		if !p.Exclusive && (o.FirstWins || totalWeight(p.Backends) > 0) {
			ports = append(ports, int(p.Port))
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// listener encodes the listener with its filter chains.
func (t *Translator) listener(m Model, o Options, chains []chain) (json.RawMessage, error) {
	var ports []uint32
	for _, p := range portsOf(m, o) {
		ports = append(ports, uint32(p))
	}
	var encoded []json.RawMessage
	for _, c := range chains {
		text, err := t.chains.get(c.key, always, func() (json.RawMessage, error) { return encode(c.translate()) })
		if err != nil {
			return nil, err
		}
		encoded = append(encoded, text)
	}
	return withParts(o.listener(ports), "filterChains", encoded)
}
