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
	key       string // equal for equal chains, but for the names of the copies of secrets
	secrets   []Name
	least     int // about the least that is written for it
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

// groups are the hosts of each chain, by the text of their values. Beside * hosts need no names, but for those that a chain of a
// wildcard would match otherwise.
func groups[V any](all map[string]V, text func(V) string, others map[string]bool) map[string][][]string {
	together := map[string][]string{}
	for host, v := range all {
		together[text(v)] = append(together[text(v)], host)
	}
	found := map[string][][]string{}
	for key, hosts := range together {
		if !slices.Contains(hosts, "*") {
			found[key] = [][]string{hosts}
			continue
		}
		elsewhere := maps.Clone(others)
		for _, host := range hosts {
			delete(elsewhere, host)
		}
		var named []string
		for _, host := range hosts {
			if wider, exists := widerOf(host, elsewhere); exists && wider != "*" {
				named = append(named, host)
			}
		}
		if found[key] = [][]string{{"*"}}; len(named) > 0 {
			found[key] = append(found[key], named)
		}
	}
	return found
}

// hostsOf are all hosts that chains are for.
func hostsOf(certificates map[string][]Name, passed map[string]tcp) map[string]bool {
	all := map[string]bool{}
	for host := range certificates {
		all[host] = true
	}
	for host := range passed {
		all[host] = true
	}
	return all
}

// certificates are the secrets of the hosts that TLS is terminated for.
func (m Model) certificates() map[string][]Name {
	found := map[string][]Name{}
	for _, l := range m.HTTP {
		if l.TLS && len(l.Secrets) > 0 {
			found[orAll(l.Hostname)] = append(found[orAll(l.Hostname)], l.Secrets...)
		}
	}
	for host, all := range found {
		slices.SortFunc(all, func(a, b Name) int { return strings.Compare(a.String(), b.String()) })
		found[host] = slices.Compact(all)
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

// tcp is where TLS connections of a host go. Without backends they are closed.
type tcp struct {
	backends []Backend
	secrets  []Name
}

// passthroughs are the backends of the hosts whose TLS is not that of HTTP. A host has one filter chain: where TLS is
// terminated for HTTP, it is not passed through.
func (m Model) passthroughs(o Options, terminated map[string][]Name) (found map[string]tcp, problems []Problem) {
	found = map[string]tcp{}
	first := map[string]int{}
	for i, p := range m.Passthrough {
		for _, host := range p.Hostnames {
			if p.Exclusive {
				continue
			}
			if host = orAll(host); terminated[host] != nil {
				problems = append(problems, Problem{Source: p.Source, Message: fmt.Sprintf("TLS of host %s is not passed through: it is terminated for another listener", host)})
				continue
			}
			if at, exists := first[host]; o.FirstWins && exists && at != i {
				continue
			}
			first[host] = i
			to := tcp{found[host].backends, p.Secrets}
			for _, b := range p.Backends {
				if weightOf(b) > 0 { // Envoy refuses others here
					to.backends = append(to.backends, b)
				}
			}
			found[host] = to
		}
	}
	return m.withoutClosed(o, found, terminated), problems
}

// withoutClosed leaves out the hosts whose connections are to be closed, and that no chain of a wider name is for, if there is another
// filter chain: Envoy closes what no chain is for.
func (m Model) withoutClosed(o Options, all map[string]tcp, terminated map[string][]Name) map[string]tcp {
	served := maps.Clone(all)
	maps.DeleteFunc(served, func(_ string, to tcp) bool { return len(to.backends) == 0 })
	open, own := maps.Clone(served), maps.Clone(all)
	for _, p := range m.Passthrough {
		for _, host := range p.Hostnames {
			if _, isServed := own[orAll(host)]; p.Exclusive && !isServed && terminated[orAll(host)] == nil {
				own[orAll(host)] = tcp{}
			}
		}
	}
	for host, to := range own {
		_, passed := widerOf(host, open)
		if _, ended := widerOf(host, terminated); passed || ended {
			served[host] = to
		}
	}
	if len(served) > 0 || len(terminated) > 0 || m.hasPlain() || !o.FirstWins {
		return served
	}
	return all
}

func (t tcp) text() string {
	if len(t.backends) == 1 && len(t.secrets) == 0 {
		return t.backends[0].cluster()
	}
	var b strings.Builder
	for _, one := range t.backends {
		fmt.Fprintf(&b, "%s %d\n", one.cluster(), weightOf(one))
	}
	return b.String() + secretsText(t.secrets)
}

// chains are the filter chains of a listener: of plain HTTP, of certificates, of backends.
func (o Options) chains(p part, certificates map[string][]Name, passed map[string]tcp) (all []chain) {
	filterText, least := o.auths.text()
	if p.hasPlain() {
		all = append(all, chain{"plain\n" + filterText, nil, leastChain + least, func() *listenerv3.FilterChain { return o.httpFilterChain(plainTable, nil, nil) }})
	}
	hosts := hostsOf(certificates, passed)
	byCertificates := groups(certificates, secretsText, hosts)
	for _, text := range slices.Sorted(maps.Keys(byCertificates)) {
		for _, group := range byCertificates[text] {
			names, secrets := serverNames(group), certificates[group[0]]
			all = append(all, chain{"tls\n" + p.secureTable + "\n" + text + strings.Join(names, ",") + "\n" + filterText, secrets, len(secrets)*leastSecret + len(text) + least, func() *listenerv3.FilterChain {
				return o.tlsFilterChain(p.secureTable, names, secrets)
			}})
		}
	}
	byBackends := groups(passed, tcp.text, hosts)
	for _, text := range slices.Sorted(maps.Keys(byBackends)) {
		for _, group := range byBackends[text] {
			names, to := serverNames(group), passed[group[0]]
			all = append(all, chain{"pass\n" + text + "\n" + strings.Join(names, ","), to.secrets, len(to.backends)*leastBackend + len(text), func() *listenerv3.FilterChain { return o.tcpChain(names, to) }})
		}
	}
	return all
}
