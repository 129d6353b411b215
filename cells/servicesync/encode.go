// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"encoding/json"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// clusterService is the value of a key. Its fields are an interface: agents of all clusters read them. Maps are never
// nil.
type clusterService struct {
	Cluster         string             `json:"cluster"`
	Namespace       string             `json:"namespace"`
	Name            string             `json:"name"`
	Frontends       map[string]portMap `json:"frontends"`
	Backends        map[string]portMap `json:"backends"`
	Hostnames       map[string]string  `json:"hostnames"`
	Labels          map[string]string  `json:"labels"`
	Selector        map[string]string  `json:"selector"`
	IncludeExternal bool               `json:"includeExternal"`
	Shared          bool               `json:"shared"`
	ClusterID       uint32             `json:"clusterID"`
}

// portMap is ports by name.
type portMap map[string]l4Address

type l4Address struct {
	Protocol string
	Port     uint16
}

// leastPort is the least that a port adds to a value, beside its name: {"":{"Protocol":"TCP","Port":1}}.
const leastPort = 33

// add adds a port, unless there is one of its name, or it is none. It returns about how much longer the value is by it.
func (m portMap) add(name, protocol string, port int32) (bytes int) {
	if protocol == "" {
		protocol = string(corev1.ProtocolTCP)
	}
	switch corev1.Protocol(protocol) {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		return 0
	}
	if _, exists := m[name]; exists || port <= 0 || port > 65535 {
		return 0
	}
	m[name] = l4Address{protocol, uint16(port)}
	return leastPort + len(name)
}

// leftOut is what a value goes without.
type leftOut struct {
	invalid []string // addresses that are none
	beyond  int      // addresses of backends for which it has no place
}

// encode returns the value of a Service's key, and what is left out. Of two EndpointSlices that have different ports of one name for
// an address, the first decides.
func encode(s *service, of []*endpointSlice, c Config, shared cluster.Config) (value []byte, out leftOut) {
	backends, hostnames, out := backendsOf(of, c, shared.Release)
	frontends, invalidFrontends := frontendsOf(s)
	value, _ = json.Marshal(clusterService{ // maps of strings and numbers always have JSON
		Cluster: shared.ClusterName, Namespace: s.Namespace.String(), Name: s.Name,
		Frontends: frontends, Backends: backends, Hostnames: hostnames,
		Labels: mapOf(s.Labels), Selector: mapOf(s.Spec.Selector),
		IncludeExternal: true, Shared: true, ClusterID: shared.ClusterID,
	})
	out.invalid = append(out.invalid, invalidFrontends...)
	return value, out
}

func frontendsOf(s *service) (frontends map[string]portMap, invalid []string) {
	frontends = map[string]portMap{}
	if isHeadless(s) || s.Spec.ClusterIP == "" {
		return frontends, nil
	}
	ports := portMap{}
	for _, p := range s.Spec.Ports {
		ports.add(p.Name.String(), p.Protocol.String(), p.Port)
	}
	ips := s.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{s.Spec.ClusterIP}
	}
	for _, text := range ips {
		if ip, ok := canonical(text); ok {
			frontends[ip] = ports
		} else {
			invalid = append(invalid, text)
		}
	}
	return frontends, invalid
}

// mostBackends is how long the backends of a value are at most, about: etcd refuses a request of 1.5 MiB. An EndpointSlice has so many
// addresses and ports that all of them with all of these would be a thousand times that (SSYNC-21).
const mostBackends = 1200 << 10

func backendsOf(of []*endpointSlice, c Config, r release.Release) (backends map[string]portMap, hostnames map[string]string, out leftOut) {
	backends, hostnames = map[string]portMap{}, map[string]string{}
	left := mostBackends
	for _, slice := range of {
		done := map[string]bool{}
		for state, text := range slice.endpoints() {
			if !c.isBackend(state, r) {
				continue
			}
			hostname := text[0]
			for _, address := range text[1:] {
				ip, ok := canonical(address)
				if !ok {
					out.invalid = append(out.invalid, address)
					continue
				}
				if ports := backends[ip]; !done[ip] && left >= 0 {
					if ports == nil {
						ports = portMap{}
					}
					left -= len(ip) + slice.addPorts(ports, left)
					if done[ip] = true; left >= 0 {
						backends[ip] = ports
					}
				}
				if backends[ip] == nil {
					out.beyond++
					continue
				}
				if hostname != "" {
					hostnames[ip] = hostname
				}
			}
		}
	}
	return backends, hostnames, out
}

// canonical returns the canonical text of an address.
func canonical(text string) (ip string, ok bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return "", false
	}
	return addr.Unmap().String(), true
}

func mapOf(l slim.Labels) map[string]string {
	if m := l.Map(); m != nil {
		return m
	}
	return map[string]string{}
}
