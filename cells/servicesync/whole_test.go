// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
)

var wholeCodec = sync.OnceValues(slim.Protobuf[wholeSlice, discoveryv1.EndpointSlice])

// exported is the value of an EndpointSlice's key, as a reader has it.
type exported struct {
	Texts               map[protowire.Number]string // fields with one text
	ID                  uint64
	Labels, Annotations map[string]string
	Endpoints           []discoveryv1.Endpoint
	Ports               []discoveryv1.EndpointPort
}

// readExported reads a value as another cluster does.
func readExported(t *testing.T, value []byte) (e exported) {
	t.Helper()
	text, err := decompressor.DecodeAll(value, nil)
	if err != nil {
		t.Fatal(err)
	}
	e = exported{Texts: map[protowire.Number]string{}, Labels: map[string]string{}, Annotations: map[string]string{}}
	for len(text) > 0 {
		number, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		text = text[n:]
		if kind == protowire.VarintType {
			e.ID, n = protowire.ConsumeVarint(text)
			text = text[n:]
			continue
		}
		field, n := protowire.ConsumeBytes(text)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		text = text[n:]
		switch number {
		case fieldLabels:
			addEntry(t, e.Labels, field)
		case fieldAnnotations:
			addEntry(t, e.Annotations, field)
		case fieldEndpoints:
			e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{})
			err = e.Endpoints[len(e.Endpoints)-1].Unmarshal(field)
		case fieldPorts:
			e.Ports = append(e.Ports, discoveryv1.EndpointPort{})
			err = e.Ports[len(e.Ports)-1].Unmarshal(field)
		default:
			e.Texts[number] = string(field)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// addEntry adds an entry of a map of strings.
func addEntry(t *testing.T, to map[string]string, entry []byte) {
	t.Helper()
	var parts [2]string
	for i := range parts {
		number, _, n := protowire.ConsumeTag(entry)
		text, m := protowire.ConsumeString(entry[max(n, 0):])
		if n < 0 || m < 0 || int(number) != i+1 {
			t.Fatalf("an entry is %x", entry)
		}
		parts[i], entry = text, entry[n+m:]
	}
	to[parts[0]] = parts[1]
}

// SSYNC-24; number 23 of the contract's service-sync.md: the value has all endpoints, whatever their conditions, and of each what other clusters see.
func TestEncodeWhole(t *testing.T) {
	full := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "echo-1", Namespace: "test", Labels: map[string]string{discoveryv1.LabelServiceName: "echo", "app": "echo"},
			Annotations: map[string]string{"a": "b", corev1.LastAppliedConfigAnnotation: "{}"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{
				Addresses: []string{"10.0.1.5"}, Hostname: new("echo-0"), NodeName: new("n1"), Zone: new("z1"), TargetRef: &corev1.ObjectReference{Kind: "Pod"},
				Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
				Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}},
			},
			{Addresses: []string{"10.0.1.6", "10.0.1.7"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
		},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080)), AppProtocol: new("h2c")}},
	}
	slice := decode(t, wholeCodec, full)
	if slice.Endpoints != nil || slice.Ports != nil || slice.serviceKey() != (slim.Key{Namespace: "test", Name: "echo"}) {
		t.Errorf("it is kept as %+v", slice)
	}
	value, err := slice.encode("cluster1", 300)
	if err != nil {
		t.Fatal(err)
	}
	full.Endpoints[0].TargetRef, full.Ports[0].AppProtocol = nil, nil
	want := exported{
		Texts: map[protowire.Number]string{fieldCluster: "cluster1", fieldNamespace: "test", fieldName: "echo-1", fieldAddressType: "IPv4"}, ID: 300,
		Labels: full.Labels, Annotations: map[string]string{"a": "b"}, Endpoints: full.Endpoints, Ports: full.Ports,
	}
	if diff := cmp.Diff(want, readExported(t, value)); diff != "" {
		t.Error(diff)
	}
	again, err := decode(t, wholeCodec, full).encode("cluster1", 300)
	if err != nil || string(again) != string(value) {
		t.Errorf("the same EndpointSlice has another value, %v", err)
	}
}
