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
// nil, but for those that a release leaves out.
type clusterService struct {
	Cluster         string             `json:"cluster"`
	Namespace       string             `json:"namespace"`
	Name            string             `json:"name"`
	Frontends       map[string]portMap `json:"frontends"`
	Backends        map[string]portMap `json:"backends"`
	Hostnames       *map[string]string `json:"hostnames,omitempty"`
	Zones           map[string]*zone   `json:"zones,omitempty"`
	Labels          map[string]string  `json:"labels"`
	Selector        map[string]string  `json:"selector"`
	IncludeExternal bool               `json:"includeExternal"`
	Shared          bool               `json:"shared"`
	ClusterID       uint32             `json:"clusterID"`
}

// zone is where a backend is, and for which zones it is meant.
type zone struct {
	Zone     string    `json:"zone"`
	ForZones []forZone `json:"forZones"`
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
	if out.beyond.labels = sizeOf(v.Labels)+sizeOf(v.Selector) > mostLabels; out.beyond.labels {
		v.Labels, v.Selector = map[string]string{}, map[string]string{}
	}
	var invalidFrontends []string
	v.Frontends, invalidFrontends, out.beyond.ports = frontendsOf(s, shared.Release)
	without, _ := json.Marshal(v) // maps of strings and numbers always have JSON
	b := newBackends(shared.Release, kvstore.MaxValue-len(without)-len(`"hostnames":{},"zones":{},`))
	b.add(of, c, &out)
	b.addZones(&out)
	v.Backends, v.Zones = b.ports, b.zones
	if len(b.hostnames) > 0 || !release.ZonesOfBackends.In(shared.Release) {
		v.Hostnames = &b.hostnames
	}
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

// backends are those of a Service, and what is known of them, by address. Their JSON has so many bytes left, less than 0 once something did not fit.
type backends struct {
	of        release.Release
	ports     map[string]portMap
	hostnames map[string]string
	zones     map[string]*zone
	inZones   []inZone // in order
	left      int
}

// inZone is a backend and its zone.
type inZone struct {
	ip   string
	zone *zone
}

func newBackends(of release.Release, left int) *backends {
	return &backends{of: of, ports: map[string]portMap{}, hostnames: map[string]string{}, zones: map[string]*zone{}, left: left}
}

// add adds the endpoints of slices, and records what is left out.
func (b *backends) add(of []*endpointSlice, c Config, out *leftOut) {
	for _, slice := range of {
		done := map[string]bool{}
		for e := range slice.endpoints() {
			if !c.isBackend(e.state, b.of) {
				continue
			}
			for _, address := range e.addresses {
				ip, ok := canonical(address)
				if !ok {
					out.invalid = append(out.invalid, address)
					continue
				}
				if !done[ip] {
					done[ip] = true
					if !b.addPorts(slice, ip) {
						out.beyond.backends++
					}
				}
				if b.ports[ip] != nil {
					b.describe(ip, e, out)
				}
			}
		}
	}
}

// addPorts adds the ports of a slice to an address. It returns false for a new address that does not fit, which is left out; one of an
// earlier slice keeps the ports that it has.
func (b *backends) addPorts(s *endpointSlice, ip string) (fits bool) {
	ports, has := b.ports[ip]
	if b.left < 0 {
		return has
	}
	if !has {
		ports = portMap{}
		b.left -= sizeOfBackend(ip)
	}
	if b.left -= s.addPorts(ports, b.left); b.left >= 0 {
		b.ports[ip] = ports
	}
	return b.left >= 0
}

// describe sets the hostname and the zone of a backend.
func (b *backends) describe(ip string, e found, out *leftOut) {
	if e.hostname != "" && b.hostnames[ip] != e.hostname && !set(b, b.hostnames, ip, e.hostname) {
		out.beyond.hostnames++
	}
	if e.zone != nil && release.ZonesOfBackends.In(b.of) {
		b.inZones = append(b.inZones, inZone{ip, e.zone})
	}
}

// addZones adds the zones of backends in what all else has left.
func (b *backends) addZones(out *leftOut) {
	for _, z := range b.inZones {
		if !set(b, b.zones, z.ip, z.zone) {
			out.beyond.zones++
		}
	}
}

// set sets what is known of a backend. It returns false if it does not fit, and is left out.
func set[V any](b *backends, of map[string]V, ip string, value V) (fits bool) {
	more := sizeOfEntry(ip, value)
	if has, is := of[ip]; is {
		more -= sizeOfEntry(ip, has)
	}
	if b.left -= more; b.left >= 0 {
		of[ip] = value
	}
	return b.left >= 0
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
