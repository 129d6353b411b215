// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"fmt"
	"maps"
	"slices"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// wholeSlice is an EndpointSlice with all that other clusters see of it. It is kept as the text of its key, without the fields of the
// cluster: most belong to Services that are not shared.
type wholeSlice struct {
	wholeMeta   `json:"metadata"`
	slim.Cut    `json:"-"`
	AddressType slim.String     `json:"addressType"`
	Endpoints   []wholeEndpoint `json:"endpoints"` // nil after Trim
	Ports       []port          `json:"ports"`     // nil after Trim

	of   slim.String `json:"-"` // its Service
	text string      `json:"-"` // compressed
}

type wholeMeta struct {
	slim.Meta
	Labels      slim.Labels                 `json:"labels"`      // empty after Trim
	Annotations slim.Subset[notLastApplied] `json:"annotations"` // empty after Trim
}

type notLastApplied struct{}

// Keep implements slim.KeyFilter.
func (notLastApplied) Keep(key string) bool { return key != corev1.LastAppliedConfigAnnotation }

type wholeEndpoint struct {
	Addresses  []string `json:"addresses"`
	Conditions struct {
		Ready       *bool `json:"ready"`
		Serving     *bool `json:"serving"`
		Terminating *bool `json:"terminating"`
	} `json:"conditions"`
	Hostname *string `json:"hostname"`
	NodeName *string `json:"nodeName"`
	Zone     *string `json:"zone"`
	Hints    *struct {
		ForZones []forZone `json:"forZones"`
	} `json:"hints"`
}

var (
	wholeSlices = stream.Core[wholeSlice, discoveryv1.EndpointSlice](discoveryv1.SchemeGroupVersion.WithResource("endpointslices")).
			MatchingLabels(discoveryv1.LabelServiceName + "," + discoveryv1.LabelManagedBy + "!=" + meshManager)

	// wholeByService finds the EndpointSlices of a Service.
	wholeByService = stream.NewIndex("service", func(s *wholeSlice, add func(slim.Key)) { add(s.serviceKey()) })
)

func (s *wholeSlice) serviceKey() slim.Key {
	return slim.Key{Namespace: s.Namespace.String(), Name: s.of.String()}
}

// The numbers of the fields of a value (SSYNC-24).
const (
	fieldCluster protowire.Number = iota + 1
	fieldClusterID
	fieldNamespace
	fieldName
	fieldLabels
	fieldAnnotations
	fieldAddressType
	fieldEndpoints
	fieldPorts
)

// Trim implements slim.Trimmer.
func (s *wholeSlice) Trim() {
	service, _ := s.Labels.Lookup(discoveryv1.LabelServiceName)
	s.of, s.text = slim.MakeString(service), string(compressor.EncodeAll(s.body(), nil))
	s.Labels, s.Annotations, s.Endpoints, s.Ports = slim.Labels{}, slim.Subset[notLastApplied]{}, nil, nil
}

// CutDown implements slim.Cutter: its Service is still known.
func (s *wholeSlice) CutDown() {
	s.Labels, s.Annotations, s.Endpoints, s.Ports, s.text = slim.Labels{}, slim.Subset[notLastApplied]{}, nil, nil, ""
}

// body is the fields that follow from the EndpointSlice.
func (s *wholeSlice) body() (b []byte) {
	b = appendText(b, fieldNamespace, s.Namespace.String())
	b = appendText(b, fieldName, s.Name)
	b = appendMap(b, fieldLabels, s.Labels.Map())
	b = appendMap(b, fieldAnnotations, s.Annotations.Map())
	b = appendText(b, fieldAddressType, s.AddressType.String())
	for i := range s.Endpoints {
		b = appendMessage(b, fieldEndpoints, s.Endpoints[i].api())
	}
	for i := range s.Ports {
		b = appendMessage(b, fieldPorts, s.Ports[i].api())
	}
	return b
}

// encode returns the value of the key. The error is that of a text that is damaged.
func (s *wholeSlice) encode(cluster string, id uint32) ([]byte, error) {
	head := appendText(nil, fieldCluster, cluster)
	head = protowire.AppendVarint(protowire.AppendTag(head, fieldClusterID, protowire.VarintType), uint64(id))
	all, err := decompressor.DecodeAll([]byte(s.text), head)
	if err != nil {
		return nil, fmt.Errorf("reading what is kept of the EndpointSlice: %w", err)
	}
	return compressor.EncodeAll(all, nil), nil
}

// api is the endpoint as Kubernetes encodes it, without what other clusters do not see.
func (e *wholeEndpoint) api() *discoveryv1.Endpoint {
	to := &discoveryv1.Endpoint{
		Addresses: e.Addresses, Hostname: e.Hostname, NodeName: e.NodeName, Zone: e.Zone,
		Conditions: discoveryv1.EndpointConditions{Ready: e.Conditions.Ready, Serving: e.Conditions.Serving, Terminating: e.Conditions.Terminating},
	}
	if e.Hints != nil {
		to.Hints = &discoveryv1.EndpointHints{}
		for _, z := range e.Hints.ForZones {
			to.Hints.ForZones = append(to.Hints.ForZones, discoveryv1.ForZone{Name: z.Name})
		}
	}
	return to
}

// api is the port as Kubernetes encodes it, without what other clusters do not see.
func (p *port) api() *discoveryv1.EndpointPort {
	protocol := corev1.Protocol(p.Protocol)
	return &discoveryv1.EndpointPort{Name: &p.Name, Protocol: &protocol, Port: p.Port}
}

// message is one whose fields have the numbers that Kubernetes gives them.
type message interface{ Marshal() ([]byte, error) }

func appendMessage(b []byte, field protowire.Number, m message) []byte {
	text, _ := m.Marshal() // it has strings and numbers
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// appendMap appends the entries of a map, by their keys.
func appendMap(b []byte, field protowire.Number, m map[string]string) []byte {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		entry := appendText(appendText(nil, 1, key), 2, m[key])
		b = protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), entry)
	}
	return b
}

// compressor and decompressor are safe for concurrent use. Their errors would be those of options.
var (
	compressor, _   = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20))
	decompressor, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
)
