// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoytest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
)

// Answer is what becomes of a request.
type Answer struct {
	// Secrets is what TLS is terminated with, "" if it is not.
	Secrets string
	// To is the clusters with "+" between them, or what else answers: a status, "redirect", "closed", or "no host".
	To string
	// Kind and Path are of the route that matches: "exact", "prefix" or "regex".
	Kind, Path string
	// At is how much less exact the name is that answers: 0 for the host itself.
	At int
}

// String is what a client can see.
func (a Answer) String() string { return strings.TrimSpace(a.Secrets + " " + a.To) }

// NamesFor are the names that answer for a host: itself, its wildcards, the nearest first, and "*".
func NamesFor(host string) []string {
	names := []string{host}
	for rest := host; ; {
		_, after, found := strings.Cut(rest, ".")
		if !found {
			return append(names, "*")
		}
		names, rest = append(names, "*."+after), after
	}
}

// Answer is how Envoy answers a request that comes to a listener, "closed" if there is none. The configuration may be nil.
func (c *Config) Answer(listener string, tls bool, host, path string) Answer {
	if c == nil || c.Listeners[listener] == nil {
		return Answer{To: "closed"}
	}
	chain, at := ChainFor(c.Listeners[listener].FilterChains, tls, host)
	if chain == nil || len(chain.Filters) == 0 {
		return Answer{To: "closed", At: at}
	}
	manager, proxy := &hcmv3.HttpConnectionManager{}, &tcpv3.TcpProxy{}
	if chain.Filters[0].GetTypedConfig().UnmarshalTo(proxy) == nil {
		all := []string{proxy.GetCluster()}
		for _, w := range proxy.GetWeightedClusters().GetClusters() {
			all = append(all, w.Name)
		}
		return Answer{To: strings.Trim(strings.Join(all, "+"), "+"), At: at}
	}
	if err := chain.Filters[0].GetTypedConfig().UnmarshalTo(manager); err != nil {
		return Answer{To: err.Error(), At: at}
	}
	a := Routed(c.Tables[manager.GetRds().GetRouteConfigName()], host, path)
	if tls {
		a.Secrets, a.At = chain.TransportSocket.String(), max(a.At, at)
	}
	return a
}

// ChainFor is the filter chain that a connection for a host gets, nil for none, and how much less exact its name is.
func ChainFor(all []*listenerv3.FilterChain, tls bool, host string) (chain *listenerv3.FilterChain, at int) {
	for at, name := range NamesFor(host) {
		for _, chain := range all {
			m := chain.FilterChainMatch
			if (m.TransportProtocol == "tls") == tls && (slices.Contains(m.ServerNames, name) || len(m.ServerNames) == 0 && name == "*") {
				return chain, at
			}
		}
	}
	return nil, 0
}

// Routed is how a route table answers a request, "no host" if it has no virtual host for it. The table may be nil.
func Routed(table *routev3.RouteConfiguration, host, path string) Answer {
	for at, name := range NamesFor(host) {
		for _, v := range table.GetVirtualHosts() {
			if !slices.Contains(v.Domains, name) {
				continue
			}
			for _, r := range v.Routes {
				if a := (Answer{To: strings.Join(clustersOf(r), "+"), At: at}); a.matches(r, path) {
					return a
				}
			}
			return Answer{To: "404", At: at}
		}
	}
	return Answer{To: "no host"}
}

func (a *Answer) matches(r *routev3.Route, path string) bool {
	switch p := r.Match.PathSpecifier.(type) {
	case *routev3.RouteMatch_Path:
		a.Kind, a.Path = "exact", p.Path
		return path == p.Path
	case *routev3.RouteMatch_SafeRegex:
		a.Kind, a.Path = "regex", p.SafeRegex.Regex
		is, err := regexp.MatchString("^(?:"+a.Path+")$", path)
		return err == nil && is
	case *routev3.RouteMatch_Prefix:
		a.Kind, a.Path = "prefix", p.Prefix
		return strings.HasPrefix(path, p.Prefix)
	case *routev3.RouteMatch_PathSeparatedPrefix:
		a.Kind, a.Path = "prefix", p.PathSeparatedPrefix
		return path == a.Path || strings.HasPrefix(path, a.Path+"/")
	}
	return false
}

func clustersOf(r *routev3.Route) []string {
	to := r.GetRoute()
	switch {
	case r.GetRedirect() != nil:
		return []string{"redirect"}
	case to == nil:
		return []string{fmt.Sprint(r.GetDirectResponse().GetStatus())}
	case to.GetCluster() != "":
		return []string{to.GetCluster()}
	}
	var all []string
	for _, w := range to.GetWeightedClusters().GetClusters() {
		all = append(all, w.Name)
	}
	return all
}
