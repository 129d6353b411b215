// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"encoding/json"
	"maps"
	"slices"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// Translator translates the successive models of one CiliumEnvoyConfig, always with the same options. What has not changed
// since the last model is not translated again. The zero Translator is ready for use; it is not safe for concurrent use.
type Translator struct {
	hosts    cache[hostKey, *host]
	chains   cache[string, json.RawMessage]
	clusters cache[clusterKey, json.RawMessage]

	made int // bytes that are expected of the hosts of this model that were translated anew
}

// memoryOfText is how many bytes of memory a byte that is written needs while it is translated, about: small routes are many small objects.
const memoryOfText = 15

// Translation is the configuration for a model.
type Translation struct {
	Spec v2.CiliumEnvoyConfigSpec
	// Empty says that there is no listener: nothing is to be written.
	Empty    bool
	Problems []Problem // in a fixed order
	// Need is about how many bytes it has needed of those that are translated at most (ENV-40): what is written, or was expected of a host, if that is
	// more.
	Need int
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

// Translate translates a model. It returns a TooLargeError before it does what could not be written.
func (t *Translator) Translate(m Model, o Options) (Translation, error) {
	t.hosts.begin()
	t.chains.begin()
	t.clusters.begin()
	t.made = 0
	if m.tooManyPlaces() {
		return Translation{}, &TooLargeError{Size: mostTranslated, AtLeast: true}
	}
	var lost []Problem
	if o.Owners {
		m, lost = m.owned()
	} else if isClaimed := func(l Listener) bool { return l.Claimed }; slices.ContainsFunc(m.HTTP, isClaimed) {
		m.HTTP = slices.DeleteFunc(slices.Clone(m.HTTP), isClaimed)
	}
	result := Translation{Problems: lost}
	used, left := usage{}, budget(mostTranslated)
	var problems []Problem
	if o.auths, problems = m.auths(); len(o.auths.byName) > 0 {
		o.auths.use(used)
	}
	result.Problems = append(result.Problems, problems...)
	var listeners, tables []json.RawMessage
	var served []part
	for _, p := range m.parts(o) {
		one, err := t.translate(p, o, used, &left)
		if err != nil {
			return result, err
		}
		result.Problems = append(result.Problems, one.problems...)
		if one.listener == nil {
			continue
		}
		listeners, tables, served = append(listeners, one.listener), append(tables, one.tables...), append(served, p)
	}
	if len(listeners) == 0 {
		result.Empty = true
		return result, nil
	}
	clusters, err := t.encodeClusters(o, used, &left)
	if err != nil {
		return result, err
	}
	for _, text := range slices.Concat(listeners, tables, clusters) {
		result.Spec.Resources = append(result.Spec.Resources, rawResource(text))
	}
	result.Problems, result.Need = slices.Compact(result.Problems), mostTranslated-int(left)
	result.Spec.Services = servicesOf(served, o)
	result.Spec.BackendServices = used.services()
	if o.HostNetwork != nil && len(o.HostNetwork.NodeSelector) > 0 {
		result.Spec.NodeSelector = &v2.LabelSelector{MatchLabels: o.HostNetwork.NodeSelector}
	}
	return result, nil
}

// translatedPart is what a part has become.
type translatedPart struct {
	listener json.RawMessage // nil: it has no filter chain
	tables   []json.RawMessage
	problems []Problem
}

// translate translates a part, and adds the backends that it refers to.
func (t *Translator) translate(p part, o Options, used usage, left *budget) (to translatedPart, err error) {
	certificates := p.certificates()
	passed, problems := p.passthroughs(o, certificates)
	to.problems = problems
	chains := o.chains(p, certificates, passed)
	if len(chains) == 0 {
		return to, nil
	}
	if to.listener, err = t.listener(p, o, chains, left); err != nil {
		return to, err
	}
	for _, at := range passed {
		used.add(at.backends...)
	}
	hosts := p.tables(o, o.auths.names())
	for _, table := range p.usedTables(certificates) {
		text, problems, err := t.table(table, hosts, o, used, left)
		if err != nil {
			return to, err
		}
		to.tables, to.problems = append(to.tables, text), append(to.problems, problems...)
	}
	return to, nil
}

// table encodes a route table, and adds the backends that it refers to.
func (t *Translator) table(name string, all map[hostKey]*hostRoutes, o Options, used usage, left *budget) (text json.RawMessage, problems []Problem, err error) {
	var encoded []json.RawMessage
	ignorePort := false
	for _, key := range slices.SortedFunc(maps.Keys(all), compareHosts) {
		if key.table != name {
			continue
		}
		ignorePort = ignorePort || key.port == 0 && isWildcard(key.hostname) && key.hostname != "*"
		h, err := t.hosts.get(key, func(h *host) bool { return h.of.equal(all[key]) }, func() (*host, error) {
			expected, err := left.checkHost(o, key.hostname, all[key])
			if err == nil {
				err = t.await(o, expected)
			}
			if err != nil {
				return nil, err
			}
			h, err := o.translateHost(key, all[key], *left)
			if err == nil {
				h.expected = expected
			}
			return h, err
		})
		if err == nil {
			err = left.spend(max(len(h.json), h.expected))
		}
		if err != nil {
			return nil, problems, err
		}
		problems = append(problems, h.problems...)
		if h.json != nil {
			encoded = append(encoded, h.json)
		}
		used.join(h.backends)
	}
	text, err = routeTable(name, encoded, ignorePort)
	return text, problems, err
}

// await waits before a host of so many bytes is translated anew.
func (t *Translator) await(o Options, expected int) error {
	if t.made += expected; o.Await == nil {
		return nil
	}
	return o.Await(t.made * memoryOfText)
}

// hasPlain reports whether there is a listener of plain HTTP, or one that has plain requests redirected.
func (m Model) hasPlain() bool {
	return slices.ContainsFunc(m.HTTP, func(l Listener) bool { return !l.TLS || l.ForceHTTPS && len(l.Routes) > 0 })
}

// usedTables are the route tables that filter chains refer to.
func (p part) usedTables(certificates map[string][]Name) (names []string) {
	if p.hasPlain() {
		names = append(names, plainTable)
	}
	if len(certificates) > 0 {
		names = append(names, p.secureTable)
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

// listener encodes a listener with its filter chains.
func (t *Translator) listener(p part, o Options, chains []chain, left *budget) (json.RawMessage, error) {
	var ports []uint32
	for _, port := range portsOf(p.Model, o) {
		ports = append(ports, uint32(port))
	}
	var encoded []json.RawMessage
	for _, c := range chains {
		if err := left.check(c.least); err != nil { // before names are asked for
			return nil, err
		}
		text, err := t.chains.get(c.key+"\n"+o.copiesText(c.secrets), always, func() (json.RawMessage, error) {
			if err := t.await(o, c.least); err != nil {
				return nil, err
			}
			return encode(c.translate())
		})
		if err == nil {
			err = left.spend(len(text))
		}
		if err != nil {
			return nil, err
		}
		encoded = append(encoded, text)
	}
	return withParts(o.listener(p.name, ports), "filterChains", encoded)
}
