// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

// What follows is the translation once more, from the rules of docs/wire/envoy.md alone: slow, without anything that is kept,
// and on texts. "host | match → action" is a route; the order of the routes of a host is that of the list.

// expectation is what a configuration has to show.
type expectation struct {
	routes   []string // table, host, match, action
	chains   []string // match, certificates or backends
	clusters []string // name, protocol
	backends []string // namespace/name ports
	ports    []int
}

type referenceRoute struct {
	r     *Route
	https bool
	to    []Backend
}

func (e *expectation) addHost(table, host string, routes []referenceRoute, firstWins bool) {
	// equal requests are one route: a fallback gives way, a redirect to HTTPS wins, backends are joined
	var kept []referenceRoute
	sort.SliceStable(routes, func(i, j int) bool { return routes[i].https && !routes[j].https })
	for _, r := range routes {
		i := slices.IndexFunc(kept, func(k referenceRoute) bool { return referenceMatch(k.r) == referenceMatch(r.r) })
		switch {
		case i < 0:
			kept = append(kept, r)
		case kept[i].https && !r.https: // the redirect stays
		case kept[i].r.Fallback && !r.r.Fallback:
			kept[i] = r
		case kept[i].r.Fallback == r.r.Fallback && !firstWins:
			kept[i].to = slices.Concat(kept[i].to, r.to)
		}
	}
	sort.SliceStable(kept, func(i, j int) bool { return referenceRank(kept[i].r) > referenceRank(kept[j].r) })
	for _, r := range kept {
		e.routes = append(e.routes, fmt.Sprintf("%s %s | %s → %s", table, host, referenceMatch(r.r), referenceAction(r)))
		if r.https || r.r.Redirect != nil || referenceWeight(r.to) == 0 {
			continue
		}
		for _, b := range r.to {
			e.addCluster(b, true, r.r.GRPC)
		}
		for _, m := range r.r.Mirrors {
			e.addCluster(m.Backend, true, r.r.GRPC)
		}
	}
}

func referenceWeight(all []Backend) (sum int) {
	for _, b := range all {
		if b.Weight == nil {
			sum++
		} else {
			sum += int(*b.Weight)
		}
	}
	return sum
}

// referencePath is the kind and the value of a path as Envoy has it.
func referencePath(r *Route) (kind, value string) {
	switch r.Path.Kind {
	case Exact:
		return "path", r.Path.Value
	case Regex:
		return "regex", r.Path.Value
	case Prefix:
		if r.Path.Value != "/" {
			return "separated", strings.TrimSuffix(r.Path.Value, "/")
		}
	}
	return "prefix", "/"
}

func referenceMatch(r *Route) string {
	kind, value := referencePath(r)
	text := kind + " " + value
	var headers []string
	for _, h := range r.Headers {
		headers = append(headers, fmt.Sprintf(" h:%s:%d:%s", h.Name, h.Kind, h.Value))
	}
	slices.Sort(headers)
	text += strings.Join(headers, "")
	if r.Method != "" {
		text += " m:" + strings.ToUpper(r.Method)
	}
	for _, q := range r.Queries {
		text += fmt.Sprintf(" q:%s:%d:%s", q.Name, q.Kind, q.Value)
	}
	return text
}

// referenceRank is larger for routes that go first.
func referenceRank(r *Route) string {
	var exact, regex, prefix int
	switch kind, value := referencePath(r); kind {
	case "path":
		exact = len(value)
	case "regex":
		regex = len(value)
	default:
		prefix = len(value)
	}
	method := "\x00" // none; the other names in falling order
	if r.Method != "" {
		method = "\x01"
		for _, c := range strings.ToUpper(r.Method) {
			method += string(rune(0x7f - c))
		}
		method += "\x7f"
	}
	first := 1
	if r.Fallback {
		first = 0
	}
	return fmt.Sprintf("%d %04d %04d %04d %-20s %02d %02d", first, exact, regex, prefix, method, len(r.Headers), len(r.Queries))
}

func referenceAction(r referenceRoute) string {
	switch {
	case r.https:
		return "https"
	case r.r.Redirect != nil:
		return "redirect " + r.r.Redirect.Host
	case referenceWeight(r.to) == 0:
		if r.r.NoBackend == 0 {
			return "500"
		}
		return fmt.Sprint(r.r.NoBackend)
	}
	var names []string
	for _, b := range r.to {
		name := referenceName(b)
		if len(r.to) > 1 {
			name += fmt.Sprintf("=%d", referenceWeight([]Backend{b}))
		}
		names = append(names, name)
	}
	text := strings.Join(names, " ")
	if r.r.RequestTimeout != nil {
		text += " " + r.r.RequestTimeout.String()
	}
	return text
}

// referenceName is the name of the cluster of a backend.
func referenceName(b Backend) string {
	name := b.Namespace + ":" + b.Name.Name + ":" + b.Port
	if b.TLS != nil {
		name += ":tls"
	}
	return name
}

// referenceTLS is how a backend is spoken to with TLS: the name that is asked for, the authority, the names that it may have.
func referenceTLS(b Backend) string {
	if b.TLS == nil {
		return ""
	}
	text := " " + b.TLS.ServerName + " cilium-secrets/" + b.TLS.Authority.Namespace + "-cfgmap-" + b.TLS.Authority.Name
	if len(b.TLS.Names) == 0 {
		text += " DNS:" + b.TLS.ServerName
	}
	for _, n := range b.TLS.Names {
		if n.IsURI {
			text += " URI:" + n.Value
		} else {
			text += " DNS:" + n.Value
		}
	}
	return text
}

func (e *expectation) addCluster(b Backend, http, grpc bool) {
	name := referenceName(b) + referenceTLS(b)
	protocol := 0
	if http {
		protocol = 1
	}
	if grpc {
		protocol = 2
	}
	e.clusters = append(e.clusters, fmt.Sprintf("%s %d", name, protocol))
	e.backends = append(e.backends, b.Namespace+"/"+b.Name.Name+" "+b.Port)
}

// reference is what the configuration of a model has to show.
func reference(m Model, firstWins bool) *expectation {
	e := &expectation{}
	plain, secure := map[string][]referenceRoute{}, map[string][]referenceRoute{}
	hasPlain, secrets := false, map[string][]string{}
	for _, l := range m.HTTP {
		e.ports = append(e.ports, int(l.Port))
		hasPlain = hasPlain || !l.TLS
		name := l.Hostname
		if name == "" {
			name = "*"
		}
		if l.TLS {
			for _, s := range l.Secrets {
				secrets[name] = append(secrets[name], s.Namespace+"-"+s.Name)
			}
		}
		for hosts, r := range l.all() {
			for _, h := range hosts {
				route := referenceRoute{r, false, r.Backends}
				if !l.TLS {
					plain[h] = append(plain[h], route)
					continue
				}
				secure[h] = append(secure[h], route)
				if l.ForceHTTPS {
					route.https = true
					plain[h] = append(plain[h], route)
				}
			}
		}
	}
	if hasPlain {
		e.chains = append(e.chains, "raw_buffer [] plain")
		for h, routes := range plain {
			e.addHost("plain", h, routes, firstWins)
		}
	}
	if len(secrets) > 0 {
		for h, routes := range secure {
			e.addHost("secure", h, routes, firstWins)
		}
	}
	passed := map[string][]string{}
	for _, p := range m.Passthrough {
		if firstWins || referenceWeight(p.Backends) > 0 {
			e.ports = append(e.ports, int(p.Port))
		}
		for _, h := range p.Hostnames {
			if secrets[h] != nil {
				continue
			}
			if firstWins && passed[h] != nil {
				continue
			}
			mine := []string{} // with the first that wins, none have connections closed
			for _, b := range p.Backends {
				if referenceWeight([]Backend{b}) == 0 {
					continue
				}
				mine = append(mine, fmt.Sprintf("%s=%d", referenceName(b), referenceWeight([]Backend{b})))
				e.addCluster(b, false, false)
			}
			passed[h] = slices.Concat(passed[h], mine)
			if passed[h] == nil {
				passed[h] = mine
			}
		}
	}
	others := maps.Clone(passed) // without those that no chain is needed for, so that they are closed
	maps.DeleteFunc(others, func(h string, all []string) bool {
		return len(all) == 0 && !slices.ContainsFunc(slices.Concat(slices.Collect(maps.Keys(passed)), slices.Collect(maps.Keys(secrets))), func(wider string) bool {
			return wider != h && (len(passed[wider]) > 0 || secrets[wider] != nil) && (wider == "*" || strings.HasPrefix(wider, "*.") && strings.HasSuffix(h, wider[1:]))
		})
	})
	if hasPlain || len(secrets) > 0 || len(others) > 0 || !firstWins {
		passed = others
	}
	for h, all := range passed {
		if len(all) == 1 { // a weight says nothing then
			passed[h] = []string{all[0][:strings.Index(all[0], "=")]}
		}
	}
	all := slices.Concat(slices.Collect(maps.Keys(secrets)), slices.Collect(maps.Keys(passed)))
	e.addChains(secrets, "certificates ", all)
	e.addChains(passed, "backends ", all)
	return e.finish()
}

// addChains adds one chain for the hosts with the same certificates or backends.
func (e *expectation) addChains(of map[string][]string, what string, all []string) {
	hosts := map[string][]string{}
	for h, values := range of {
		if what == "certificates " {
			slices.Sort(values)
			values = slices.Compact(values)
		}
		key := strings.Join(values, ",")
		hosts[key] = append(hosts[key], h)
	}
	for key, names := range hosts {
		slices.Sort(names)
		if slices.Contains(names, "*") {
			var exposed []string // to a wildcard of another chain
			for _, name := range names {
				if slices.ContainsFunc(all, func(other string) bool {
					return !slices.Contains(names, other) && name != "*" && strings.HasPrefix(other, "*.") && strings.HasSuffix(name, other[1:])
				}) {
					exposed = append(exposed, name)
				}
			}
			if len(exposed) > 0 {
				e.chains = append(e.chains, fmt.Sprint("tls ", exposed, " ", what, key))
			}
			names = nil
		}
		e.chains = append(e.chains, fmt.Sprint("tls ", names, " ", what, key))
	}
}

// finish sorts what has no order of its own. Routes of different hosts have none, those of one have.
func (e *expectation) finish() *expectation {
	hostOf := func(text string) string { return text[:strings.Index(text, " | ")] }
	slices.SortStableFunc(e.routes, func(a, b string) int { return strings.Compare(hostOf(a), hostOf(b)) })
	slices.Sort(e.chains)
	slices.Sort(e.backends)
	e.backends = slices.Compact(e.backends)
	slices.Sort(e.ports)
	e.ports = slices.Compact(e.ports)
	slices.Sort(e.clusters)
	var latest []string // of each cluster the last, which has the highest protocol
	for i, c := range e.clusters {
		if i+1 < len(e.clusters) && strings.HasPrefix(e.clusters[i+1], c[:len(c)-1]) {
			continue
		}
		latest = append(latest, c)
	}
	e.clusters = latest
	return e
}
