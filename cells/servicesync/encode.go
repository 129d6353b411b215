// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"encoding/json"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// clusterService is the value of a key. Its fields are an interface: agents of all clusters read them. Maps are never
// nil, but for zones.
type clusterService struct {
	Cluster         string                  `json:"cluster"`
	Namespace       string                  `json:"namespace"`
	Name            string                  `json:"name"`
	Frontends       map[string]portMap      `json:"frontends"`
	Backends        map[string]portMap      `json:"backends"`
	Hostnames       map[string]string       `json:"hostnames"`
	Zones           map[string]*backendZone `json:"zones,omitempty"` // those that are known, for agents from 1.19 on
	Labels          map[string]string       `json:"labels"`
	Selector        map[string]string       `json:"selector"`
	IncludeExternal bool                    `json:"includeExternal"`
	Shared          bool                    `json:"shared"`
	ClusterID       uint32                  `json:"clusterID"`
}

// portMap is ports by name.
type portMap map[string]l4Address

type l4Address struct {
	Protocol string
	Port     uint16
}

// add adds a port, unless there is one of its name, or it is none, or its JSON is longer than most. It returns how long that is.
func (m portMap) add(name, protocol string, port int32, most int) (bytes int) {
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
	bytes = sizeOfPort(name, protocol, port)
	if bytes <= most {
		m[name] = l4Address{protocol, uint16(port)}
	}
	return bytes
}

// leftOut is what a value goes without.
type leftOut struct {
	invalid []string // addresses that are none
	beyond  beyond
}

// encode returns the value of a Service's key, and what is left out. Of two EndpointSlices that have different ports of one name for
// an address, the first decides.
func encode(s *service, of []*endpointSlice, c Config, shared cluster.Config) (value []byte, out leftOut) {
	v := clusterService{
		Cluster: shared.ClusterName, Namespace: s.Namespace.String(), Name: s.Name,
		Labels: mapOf(s.Labels), Selector: mapOf(s.Spec.Selector),
		IncludeExternal: true, Shared: true, ClusterID: shared.ClusterID,
	}
	if out.beyond.labels = sizeOfMap(v.Labels)+sizeOfMap(v.Selector) > mostLabels; out.beyond.labels {
		v.Labels, v.Selector = map[string]string{}, map[string]string{}
	}
	var invalidFrontends []string
	v.Frontends, invalidFrontends, out.beyond.ports = frontendsOf(s, shared.Release)
	without, _ := json.Marshal(v) // maps of strings and numbers always have JSON
	var left int
	v.Backends, v.Hostnames, left = out.addBackends(of, c, shared.Release, kvstore.MaxValue-len(without))
	v.addZones(of, c, shared.Release, left)
	value, _ = json.Marshal(v)
	out.invalid = append(out.invalid, invalidFrontends...)
	return value, out
}

// frontendsOf are the frontends of a Service, the addresses that are none, and how many ports are left out.
func frontendsOf(s *service, r release.Release) (frontends map[string]portMap, invalid []string, beyond int) {
	frontends = map[string]portMap{}
	if isHeadless(s, r) || s.Spec.ClusterIP == "" {
		return frontends, nil, 0
	}
	ports, left := portMap{}, mostFrontendPorts
	for _, p := range s.Spec.Ports {
		bytes := ports.add(p.Name.String(), p.Protocol.String(), p.Port, left)
		if left -= min(bytes, left+1); left < 0 {
			beyond++
		}
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
	return frontends, invalid, beyond
}

// addBackends returns the backends whose JSON, with that of their hostnames, is no longer than left, and how many bytes are left then. It
// records what is left out.
func (out *leftOut) addBackends(of []*endpointSlice, c Config, r release.Release, left int) (backends map[string]portMap, hostnames map[string]string, rest int) {
	backends, hostnames = map[string]portMap{}, map[string]string{}
	for _, slice := range of {
		done := map[string]bool{}
		for state, text := range slice.endpoints() {
			if !c.isBackend(state, r) {
				continue
			}
			hostname := text[0]
			for _, address := range text[2:] {
				ip, ok := canonical(address)
				if !ok {
					out.invalid = append(out.invalid, address)
					continue
				}
				if !done[ip] {
					done[ip] = true
					fits := true
					if left, fits = slice.addBackend(backends, ip, left); !fits {
						out.beyond.backends++
					}
				}
				if backends[ip] != nil && hostname != "" && hostnames[ip] != hostname {
					if left = setHostname(hostnames, ip, hostname, left); left < 0 {
						out.beyond.hostnames++
					}
				}
			}
		}
	}
	return backends, hostnames, left
}

// addBackend adds the ports of a slice to an address. It returns how many bytes are left, less than 0 once something did not fit: a new
// address is left out then, one of an earlier slice keeps the ports that it has.
func (s *endpointSlice) addBackend(backends map[string]portMap, ip string, left int) (after int, fits bool) {
	ports, has := backends[ip]
	if left < 0 {
		return left, has
	}
	if !has {
		ports = portMap{}
		left -= sizeOfBackend(ip)
	}
	if left -= s.addPorts(ports, left); left >= 0 {
		backends[ip] = ports
	}
	return left, left >= 0
}

// setHostname sets the hostname of an address. It returns how many bytes are left, less than 0 if it does not fit.
func setHostname(hostnames map[string]string, ip, hostname string, left int) int {
	more := sizeOfHostname(ip, hostname)
	if has, is := hostnames[ip]; is {
		more -= sizeOfHostname(ip, has)
	}
	if left -= more; left >= 0 {
		hostnames[ip] = hostname
	}
	return left
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
