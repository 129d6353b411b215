// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"iter"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// service is what this duty reads of a Service. Of one that is not shared, annotations are all that is kept.
type service struct {
	serviceMeta `json:"metadata"`
	slim.Cut    `json:"-"`
	Spec        serviceSpec `json:"spec"`
}

type serviceMeta struct {
	slim.Meta
	Labels      slim.Labels              `json:"labels"`
	Annotations slim.Subset[annotations] `json:"annotations"`
}

type serviceSpec struct {
	Type        slim.String   `json:"type"`
	ClusterIP   string        `json:"clusterIP"`
	ClusterIPs  []string      `json:"clusterIPs"`
	ExternalIPs []string      `json:"externalIPs"`
	Selector    slim.Labels   `json:"selector"`
	Ports       []servicePort `json:"ports"`
}

type servicePort struct {
	Name     slim.String `json:"name"`
	Protocol slim.String `json:"protocol"`
	Port     int32       `json:"port"`
}

// CutDown implements slim.Cutter.
func (s *service) CutDown() { s.Labels, s.Spec = slim.Labels{}, serviceSpec{} }

// Trim implements slim.Trimmer.
func (s *service) Trim() {
	if !isShared(&s.serviceMeta) {
		s.Labels, s.Spec = slim.Labels{}, serviceSpec{}
	}
}

type annotations struct{}

// Keep implements slim.KeyFilter.
func (annotations) Keep(key string) bool {
	switch key {
	case globalAnnotation, globalAlias, sharedAnnotation, sharedAlias:
		return true
	}
	return false
}

// endpointSlice is the endpoints of a Service that may be backends. Most belong to Services that are not shared, so they
// are kept as text.
type endpointSlice struct {
	sliceMeta   `json:"metadata"`
	slim.Cut    `json:"-"`
	AddressType slim.String `json:"addressType"`
	Endpoints   []endpoint  `json:"endpoints"` // nil after Trim
	Ports       []port      `json:"ports"`     // nil after Trim

	// endpointText has a line for each endpoint: its state, its hostname, the line of its zone or "", and its addresses.
	endpointText string `json:"-"`
	// zoneText has a line for each zone of the endpoints: its name, and the zones that they are meant for.
	zoneText slim.String `json:"-"`
	// portText has a line for each port: name, protocol and number.
	portText slim.String `json:"-"`
}

type sliceMeta struct {
	slim.Meta
	Labels slim.Subset[serviceName] `json:"labels"`
}

type endpoint struct {
	Addresses  []string `json:"addresses"`
	Hostname   string   `json:"hostname"`
	Conditions struct {
		Ready   *bool `json:"ready"`
		Serving *bool `json:"serving"`
	} `json:"conditions"`
	Zone     string      `json:"zone"`
	Topology slim.Labels `json:"deprecatedTopology"`
	Hints    struct {
		ForZones []forZone `json:"forZones"`
	} `json:"hints"`
}

type forZone struct {
	Name string `json:"name"`
}

type port struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     *int32 `json:"port"`
}

type serviceName struct{}

// Keep implements slim.KeyFilter.
func (serviceName) Keep(key string) bool { return key == discoveryv1.LabelServiceName }

// The states of endpoints that may be backends.
const (
	ready   = 'r'
	serving = 's' // and not ready
)

// state returns the state of an endpoint; ok is false if it is never a backend.
func (e *endpoint) state() (state byte, ok bool) {
	c := e.Conditions
	switch {
	case c.Ready == nil || *c.Ready:
		return ready, true
	case c.Serving != nil && *c.Serving:
		return serving, true
	}
	return 0, false
}

// zoneLine is the line of zoneText of an endpoint, "" for one without a zone, or with one that no cluster has.
func (e *endpoint) zoneLine() string {
	zone := e.Zone
	if zone == "" {
		zone, _ = e.Topology.Lookup(corev1.LabelTopologyZone) // of Endpoints that are mirrored
	}
	if zone == "" {
		return ""
	}
	line := zone
	for _, z := range e.Hints.ForZones {
		line += "\t" + z.Name
	}
	if strings.Contains(line, "\n") || strings.Count(line, "\t") != len(e.Hints.ForZones) {
		return ""
	}
	return line + "\n"
}

// Trim implements slim.Trimmer.
func (s *endpointSlice) Trim() {
	var endpoints, ports, zones strings.Builder
	lines := map[string]string{"": ""} // of zones: their numbers
	if t := discoveryv1.AddressType(s.AddressType.String()); t == discoveryv1.AddressTypeIPv4 || t == discoveryv1.AddressTypeIPv6 {
		for _, e := range s.Endpoints {
			state, ok := e.state()
			if !ok || len(e.Addresses) == 0 {
				continue
			}
			line := e.zoneLine()
			number, known := lines[line]
			if !known {
				number = strconv.Itoa(len(lines) - 1)
				lines[line] = number
				zones.WriteString(line)
			}
			endpoints.WriteByte(state)
			endpoints.WriteString(e.Hostname + "\t" + number + "\t" + strings.Join(e.Addresses, "\t") + "\n")
		}
		for _, p := range s.Ports {
			if p.Port != nil {
				ports.WriteString(p.Name + "\t" + p.Protocol + "\t" + strconv.Itoa(int(*p.Port)) + "\n")
			}
		}
	}
	s.endpointText, s.portText, s.zoneText = endpoints.String(), slim.MakeString(ports.String()), slim.MakeString(zones.String())
	s.Endpoints, s.Ports = nil, nil
}

// CutDown implements slim.Cutter.
func (s *endpointSlice) CutDown() {
	s.Endpoints, s.Ports = nil, nil
	s.endpointText, s.portText, s.zoneText = "", slim.String{}, slim.String{}
}

// found is an endpoint that may be a backend.
type found struct {
	state     byte
	hostname  string
	zone      *zone // nil for none
	addresses []string
}

// endpoints yields the endpoints that may be backends.
func (s *endpointSlice) endpoints() iter.Seq[found] {
	zones := s.zones()
	return func(yield func(found) bool) {
		for line := range strings.Lines(s.endpointText) {
			parts := strings.Split(line[1:len(line)-1], "\t")
			f := found{state: line[0], hostname: parts[0], addresses: parts[2:]}
			if number, err := strconv.Atoi(parts[1]); err == nil { // written by Trim
				f.zone = zones[number]
			}
			if !yield(f) {
				return
			}
		}
	}
}

// zones are those of the endpoints.
func (s *endpointSlice) zones() (all []*zone) {
	for line := range strings.Lines(s.zoneText.String()) {
		parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		z := &zone{Zone: parts[0], ForZones: []forZone{}}
		for _, name := range parts[1:] {
			z.ForZones = append(z.ForZones, forZone{name})
		}
		all = append(all, z)
	}
	return all
}

// addPorts adds the ports of the endpoints that are not there yet. It returns how much longer the value is by them, more than most if they
// do not fit: then not all are added.
func (s *endpointSlice) addPorts(to portMap, most int) (bytes int) {
	for line := range strings.Lines(s.portText.String()) {
		if bytes > most {
			break
		}
		if part := strings.Split(line[:len(line)-1], "\t"); len(part) == 3 {
			number, _ := strconv.ParseInt(part[2], 10, 32) // written by Trim
			bytes += to.add(part[0], part[1], int32(number), most-bytes)
		}
	}
	return bytes
}

var (
	services       = stream.Core[service, corev1.Service](corev1.SchemeGroupVersion.WithResource("services"))
	endpointSlices = stream.Core[endpointSlice, discoveryv1.EndpointSlice](discoveryv1.SchemeGroupVersion.WithResource("endpointslices")).
			MatchingLabels(discoveryv1.LabelServiceName + "," + discoveryv1.LabelManagedBy + "!=" + meshManager)
)

// meshManager is the manager of EndpointSlices that are copies of backends of other clusters.
const meshManager = "endpointslice-mesh-controller.cilium.io"

func selectServices(k stream.Kind[service], c cluster.Config) stream.Kind[service] {
	return k.MatchingLabels(c.ServiceSelector())
}

// serviceOf is the Service of an EndpointSlice.
func serviceOf(s *endpointSlice) slim.Key {
	return slim.Key{Namespace: s.Namespace.String(), Name: s.Labels.Get(discoveryv1.LabelServiceName)}
}

// byNamespace finds the shared Services of a Namespace.
var byNamespace = stream.NewIndex("namespace", func(s *service, add func(string)) {
	if isShared(&s.serviceMeta) {
		add(s.Namespace.String())
	}
})

// byService finds the EndpointSlices of a Service.
var byService = stream.NewIndex("service", func(s *endpointSlice, add func(slim.Key)) { add(serviceOf(s)) })
