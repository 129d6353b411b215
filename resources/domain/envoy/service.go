// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// Algorithm is how requests are spread over the endpoints of a Service.
type Algorithm string

// The algorithms. Envoy knows others, for which it wants more than a name.
const (
	RoundRobin   Algorithm = "round_robin"
	LeastRequest Algorithm = "least_request"
	Random       Algorithm = "random"
	RingHash     Algorithm = "ring_hash"
	Maglev       Algorithm = "maglev"
)

var policies = map[Algorithm]clusterv3.Cluster_LbPolicy{
	RoundRobin: clusterv3.Cluster_ROUND_ROBIN, LeastRequest: clusterv3.Cluster_LEAST_REQUEST, Random: clusterv3.Cluster_RANDOM,
	RingHash: clusterv3.Cluster_RING_HASH, Maglev: clusterv3.Cluster_MAGLEV,
}

// Known reports whether it is one of the algorithms.
func (a Algorithm) Known() bool { _, ok := policies[a]; return ok }

// Service is a Service whose traffic goes through Envoy.
type Service struct {
	Name
	Ports     []uint32 // those that are redirected; none for all
	Algorithm Algorithm
	// PerPort has a listener of its own for each of several ports: agents have to redirect ports of one Service to several listeners.
	PerPort bool
}

// Memory is about how many bytes of memory its translation needs.
func (s Service) Memory() int { return len(s.Ports) * leastPort * memoryOfText }

// servicePart is a listener with its route table.
type servicePart struct {
	name  string // of both
	ports []int  // of the Service that lead there; none for all
	hosts []*routev3.VirtualHost
}

// Translate returns the configuration of a Service. With ports, each has a virtual host and a cluster of its own, so that requests
// stay with the endpoints of their port; they have one listener unless agents can redirect them to several.
func (s Service) Translate(t Connections) (v2.CiliumEnvoyConfigSpec, error) {
	if err := budget(mostTranslated).check(len(s.Ports) * leastPort); err != nil {
		return v2.CiliumEnvoyConfigSpec{}, err
	}
	spec := v2.CiliumEnvoyConfigSpec{}
	var messages, clusters []message
	for _, p := range s.parts() {
		to := v2.EnvoyServiceListener{Name: s.Name.Name, Namespace: s.Namespace, Ports: p.ports}
		if s.isApart() {
			to.Listener = p.name
		}
		spec.Services = append(spec.Services, to)
		messages = append(messages, s.listener(p.name, t), &routev3.RouteConfiguration{Name: p.name, VirtualHosts: p.hosts})
		for _, h := range p.hosts {
			clusters = append(clusters, s.cluster(h.Name, t))
		}
	}
	if len(s.Ports) > 0 {
		backend := v2.EnvoyBackendService{Name: s.Name.Name, Namespace: s.Namespace}
		for _, port := range s.Ports {
			backend.Ports = append(backend.Ports, portText(port))
		}
		spec.BackendServices = []v2.EnvoyBackendService{backend}
	}
	for _, m := range append(messages, clusters...) {
		text, err := encodeAny(m)
		if err != nil {
			return v2.CiliumEnvoyConfigSpec{}, err
		}
		spec.Resources = append(spec.Resources, rawResource(text))
	}
	return spec, nil
}

// isApart reports whether ports have listeners of their own.
func (s Service) isApart() bool { return s.PerPort && len(s.Ports) > 1 }

// parts are the listeners: one, unless each port has its own. Requests that come to one are told apart by the port in Host.
func (s Service) parts() (all []servicePart) {
	name := s.Name.String()
	if len(s.Ports) == 0 {
		return []servicePart{{name: name, hosts: []*routev3.VirtualHost{virtualHost(name, []string{"*"})}}}
	}
	one := servicePart{name: name}
	first := mainPort(s.Ports, 80)
	for _, port := range s.Ports {
		of := name + ":" + portText(port)
		if s.isApart() {
			all = append(all, servicePart{of, []int{int(port)}, []*routev3.VirtualHost{virtualHost(of, []string{"*"})}})
			continue
		}
		domain := "*"
		if port != first {
			domain = withPort("*", port)
		}
		one.ports, one.hosts = append(one.ports, int(port)), append(one.hosts, virtualHost(of, []string{domain}))
	}
	if s.isApart() {
		return all
	}
	return []servicePart{one}
}

func portText(port uint32) string { return strconv.FormatUint(uint64(port), 10) }

// listener serves a route table of its name.
func (s Service) listener(name string, t Connections) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:            name,
		FilterChains:    []*listenerv3.FilterChain{filterChain(nil, "envoy.filters.network.http_connection_manager", t.manager(name), nil)},
		ListenerFilters: []*listenerv3.ListenerFilter{tlsInspector()},
	}
}

// virtualHost sends all requests of its domains to the cluster of its name.
func virtualHost(name string, domains []string) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: name, Domains: domains, Routes: []*routev3.Route{{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier:  &routev3.RouteAction_Cluster{Cluster: name},
			MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(0)},
		}},
	}}}
}

// cluster is the endpoints of the Service, or of one of its ports.
func (s Service) cluster(name string, t Connections) *clusterv3.Cluster {
	c := t.cluster(name, "", downstreamHTTP)
	c.LbPolicy = policies[s.Algorithm]
	c.OutlierDetection.ConsecutiveLocalOriginFailure = wrapperspb.UInt32(2)
	return c
}

// Connections is how connections are served, in every translation.
type Connections struct {
	Idle time.Duration // after which connections to backends are closed; 0 for never
	// StreamIdle is after which time without data requests end, 0 for never; nil for Envoy's own, five minutes.
	StreamIdle *time.Duration
	Connect    time.Duration // how long it may take to connect to a backend; 0 for Envoy's own, five seconds
	// InternalIPv4 and InternalIPv6 have clients with private addresses of a family count as internal: Envoy keeps the headers by which
	// they ask things of it, and the ids of their requests.
	InternalIPv4, InternalIPv6 bool
	// Forwarded has the address of a client come from the headers of a proxy in front, and not from the connection.
	Forwarded bool
}
