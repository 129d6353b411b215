// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
)

// chain is a filter chain that is to be translated.
type chain struct {
	key       string // equal for equal chains
	translate func() *listenerv3.FilterChain
}

// serverNames are host names as a filter chain matches them: none for all.
func serverNames(hosts []string) []string {
	slices.Sort(hosts)
	if hosts = slices.Compact(hosts); slices.Contains(hosts, "*") {
		return nil
	}
	return hosts
}

// groups are the keys of a map by the text of their values.
func groups[V any](all map[string]V, text func(V) string) map[string][]string {
	found := map[string][]string{}
	for host, v := range all {
		found[text(v)] = append(found[text(v)], host)
	}
	return found
}

// certificates are the secrets of the hosts that TLS is terminated for.
func (m Model) certificates() map[string][]Name {
	found := map[string][]Name{}
	for _, l := range m.HTTP {
		if !l.TLS || len(l.Secrets) == 0 {
			continue
		}
		host := orAll(l.Hostname)
		for _, s := range l.Secrets {
			if !slices.Contains(found[host], s) {
				found[host] = append(found[host], s)
			}
		}
		slices.SortFunc(found[host], func(a, b Name) int { return strings.Compare(a.String(), b.String()) })
	}
	return found
}

func secretsText(all []Name) string {
	var b strings.Builder
	for _, s := range all {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

// passthroughs are the backends of the hosts whose TLS is passed through. A host has one filter chain: where TLS is
// terminated for it, it is not passed through.
func (m Model) passthroughs(o Options, terminated map[string][]Name) (found map[string][]Backend, problems []Problem) {
	found = map[string][]Backend{}
	first := map[string]int{}
	for i, p := range m.Passthrough {
		if totalWeight(p.Backends) == 0 {
			continue
		}
		for _, host := range p.Hostnames {
			if host = orAll(host); terminated[host] != nil {
				problems = append(problems, Problem{p.Source, fmt.Sprintf("TLS of host %s is not passed through: it is terminated for another listener", host)})
				continue
			}
			if at, exists := first[host]; o.FirstWins && exists && at != i {
				continue
			}
			first[host] = i
			for _, b := range p.Backends {
				if weightOf(b) > 0 { // Envoy refuses others here
					found[host] = append(found[host], b)
				}
			}
		}
	}
	return found, problems
}

func backendsText(all []Backend) string {
	if len(all) == 1 {
		return all[0].cluster()
	}
	var b strings.Builder
	for _, one := range all {
		fmt.Fprintf(&b, "%s %d\n", one.cluster(), weightOf(one))
	}
	return b.String()
}

// chains are the filter chains of the listener: of plain HTTP, of certificates, of backends.
func (o Options) chains(m Model, certificates map[string][]Name, passed map[string][]Backend) (all []chain) {
	if slices.ContainsFunc(m.HTTP, func(l Listener) bool { return !l.TLS }) {
		all = append(all, chain{"plain", func() *listenerv3.FilterChain { return o.httpFilterChain(plainTable, nil, nil) }})
	}
	byCertificates := groups(certificates, secretsText)
	for _, text := range slices.Sorted(maps.Keys(byCertificates)) {
		hosts := byCertificates[text]
		names, secrets := serverNames(hosts), certificates[hosts[0]]
		all = append(all, chain{"tls\n" + text + strings.Join(names, ","), func() *listenerv3.FilterChain { return o.tlsFilterChain(names, secrets) }})
	}
	byBackends := groups(passed, backendsText)
	for _, text := range slices.Sorted(maps.Keys(byBackends)) {
		hosts := byBackends[text]
		names, backends := serverNames(hosts), passed[hosts[0]]
		all = append(all, chain{"pass\n" + text + "\n" + strings.Join(names, ","), func() *listenerv3.FilterChain { return passthroughChain(names, backends) }})
	}
	return all
}
