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
}

// Translate returns the configuration of a Service. With ports, each has a listener, a route table and a cluster of
// its own, so that requests stay with the endpoints of their port.
func (s Service) Translate(t Timeouts) (v2.CiliumEnvoyConfigSpec, error) {
	name := s.Name.String()
	spec := v2.CiliumEnvoyConfigSpec{}
	if len(s.Ports) == 0 {
		spec.Services = []v2.EnvoyServiceListener{{Name: s.Name.Name, Namespace: s.Namespace}}
		return spec, s.add(&spec, name, t)
	}
	backend := v2.EnvoyBackendService{Name: s.Name.Name, Namespace: s.Namespace}
	for _, port := range s.Ports {
		number := strconv.FormatUint(uint64(port), 10)
		listener := name + ":" + number
		spec.Services = append(spec.Services, v2.EnvoyServiceListener{
			Name: s.Name.Name, Namespace: s.Namespace, Ports: []int{int(port)}, Listener: listener,
		})
		backend.Ports = append(backend.Ports, number)
		if err := s.add(&spec, listener, t); err != nil {
			return v2.CiliumEnvoyConfigSpec{}, err
		}
	}
	spec.BackendServices = []v2.EnvoyBackendService{backend}
	return spec, nil
}

// add appends a listener, its route table and its cluster, all of one name.
func (s Service) add(spec *v2.CiliumEnvoyConfigSpec, name string, t Timeouts) error {
	c := cluster(name, "", downstreamHTTP, t.Idle)
	c.LbPolicy = policies[s.Algorithm]
	c.OutlierDetection.ConsecutiveLocalOriginFailure = wrapperspb.UInt32(2)
	for _, m := range []message{
		&listenerv3.Listener{
			Name:            name,
			FilterChains:    []*listenerv3.FilterChain{filterChain(nil, "envoy.filters.network.http_connection_manager", connectionManager(name, t.StreamIdle), nil)},
			ListenerFilters: []*listenerv3.ListenerFilter{tlsInspector()},
		},
		&routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
			Name: name, Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier:  &routev3.RouteAction_Cluster{Cluster: name},
					MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(0)},
				}},
			}},
		}}},
		c,
	} {
		text, err := encodeAny(m)
		if err != nil {
			return err
		}
		spec.Resources = append(spec.Resources, rawResource(text))
	}
	return nil
}

// Timeouts are those of agents' options.
type Timeouts struct {
	Idle       time.Duration // of connections to backends
	StreamIdle time.Duration // of requests
}
