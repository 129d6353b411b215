// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// cluster1 runs the oldest release.
var cluster1 = cluster.Config{ClusterName: "cluster1", ClusterID: 1, ClusterMeshDefaultGlobalNamespace: true, Release: release.All()[0]}

// decodeService is a Service as its stream keeps it.
func decodeService(t testing.TB, change func(*corev1.Service)) *service {
	t.Helper()
	full := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "echo", Namespace: "test", Labels: map[string]string{"app": "echo"}, Annotations: map[string]string{globalAnnotation: "true"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			Selector: map[string]string{"app": "echo"}, Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	if change != nil {
		change(full)
	}
	return decode(t, serviceCodec, full)
}

// decodeSlice is an EndpointSlice as its stream keeps it.
func decodeSlice(t testing.TB, change func(*discoveryv1.EndpointSlice)) *endpointSlice {
	t.Helper()
	full := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "echo-1", Namespace: "test", Labels: map[string]string{discoveryv1.LabelServiceName: "echo"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.1.5"}, Hostname: new("echo-0"), Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
	}
	if change != nil {
		change(full)
	}
	return decode(t, sliceCodec, full)
}

var (
	serviceCodec = sync.OnceValues(slim.Protobuf[service, corev1.Service])
	sliceCodec   = sync.OnceValues(slim.Protobuf[endpointSlice, discoveryv1.EndpointSlice])
	interner     = slim.NewInterner()
)

func decode[T any](t testing.TB, makeCodec func() (*slim.Codec[T], error), full interface{ Marshal() ([]byte, error) }) *T {
	t.Helper()
	codec, err := makeCodec()
	if err != nil {
		t.Fatal(err)
	}
	message, err := full.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	obj := new(T)
	if err := codec.DecodeProtobuf(interner, message, obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// SSYNC-1 to SSYNC-4: which Services have a key; number 21 of the contract's service-sync.md. SSYNC-E2 to SSYNC-E4.
func TestIsExported(t *testing.T) {
	annotated := func(pairs ...string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Annotations = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				s.Annotations[pairs[i]] = pairs[i+1]
			}
		}
	}
	spec := func(change func(*corev1.ServiceSpec)) func(*corev1.Service) {
		return func(s *corev1.Service) { change(&s.Spec) }
	}
	noIP := func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "", nil }
	for name, c := range map[string]struct {
		change   func(*corev1.Service)
		nodePort bool
		want     bool
	}{
		"global":                                {nil, false, true},
		"without annotations":                   {annotated(), false, false},
		"in another case":                       {annotated(globalAnnotation, "True"), false, true},
		"with another value":                    {annotated(globalAnnotation, "1"), false, false},
		"global, not shared":                    {annotated(globalAnnotation, "true", sharedAnnotation, "false"), false, false},
		"global, with another value for shared": {annotated(globalAnnotation, "true", sharedAnnotation, "yes"), false, false},
		"global and shared":                     {annotated(globalAnnotation, "true", sharedAnnotation, "TRUE"), false, true},
		"shared, not global":                    {annotated(sharedAnnotation, "true"), false, false},
		"the alias":                             {annotated(globalAlias, "true"), false, true},
		"the alias of shared":                   {annotated(globalAlias, "true", sharedAlias, "false"), false, false},
		"an annotation hides its alias":         {annotated(globalAnnotation, "false", globalAlias, "true"), false, false},
		"an annotation hides the other alias":   {annotated(globalAnnotation, "true", sharedAnnotation, "true", sharedAlias, "false"), false, true},
		"an empty annotation hides its alias":   {annotated(globalAnnotation, "", globalAlias, "true"), false, false},
		"NodePort":                              {spec(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }), false, true},
		"LoadBalancer":                          {spec(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer }), false, true},
		"ExternalName":                          {spec(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeExternalName }), false, false},
		"of an unknown type":                    {spec(func(s *corev1.ServiceSpec) { s.Type = "Other" }), false, false},
		"headless":                              {spec(func(s *corev1.ServiceSpec) { s.ClusterIP = "none" }), false, true},
		"without an address":                    {spec(noIP), true, false},
		"with an external address only":         {spec(func(s *corev1.ServiceSpec) { noIP(s); s.ExternalIPs = []string{"192.0.2.1"} }), true, true},
		"with an external address, no NodePort": {spec(func(s *corev1.ServiceSpec) { noIP(s); s.ExternalIPs = []string{"192.0.2.1"} }), false, false},
		"kube-scheduler":                        {func(s *corev1.Service) { s.Name = "kube-scheduler" }, false, false},
		"kube-controller-manager":               {func(s *corev1.Service) { s.Name = "kube-controller-manager" }, false, false},
	} {
		if got := isExported(decodeService(t, c.change), c.nodePort); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// SSYNC-15: of a Service that is not shared, annotations and the name are all that is kept.
func TestStub(t *testing.T) {
	s := decodeService(t, func(s *corev1.Service) {
		s.Annotations = map[string]string{globalAnnotation: "true", sharedAnnotation: "false", "other": "x"}
	})
	if s.Labels != (slim.Labels{}) || s.Spec.ClusterIP != "" || s.Spec.Ports != nil || s.Name != "echo" || s.Annotations.Len() != 2 {
		t.Errorf("kept: %+v", s)
	}
}

const echo = `{"cluster":"cluster1","namespace":"test","name":"echo","frontends":{"10.96.0.10":{"http":{"Protocol":"TCP","Port":80}}},` +
	`"backends":{"10.0.1.5":{"http":{"Protocol":"TCP","Port":8080}}},"hostnames":{"10.0.1.5":"echo-0"},"labels":{"app":"echo"},"selector":{"app":"echo"},` +
	`"includeExternal":true,"shared":true,"clusterID":1}`

// The value of a key, byte for byte. Numbers 16, 18, 20 and 22 of the contract's service-sync.md; SSYNC-5 to SSYNC-10; SSYNC-E1, SSYNC-E5 to SSYNC-E9.
func TestEncode(t *testing.T) {
	type slices []func(*discoveryv1.EndpointSlice)
	service := func(s func(*corev1.ServiceSpec)) func(*corev1.Service) {
		return func(full *corev1.Service) { s(&full.Spec) }
	}
	endpoint := func(c discoveryv1.EndpointConditions) slices {
		return slices{func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.0.1.5"}, Conditions: c}}
		}}
	}
	terminating := endpoint(discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)})
	port := func(name string, number int32) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) {
			s.Name, s.Ports = "echo-"+name, []discoveryv1.EndpointPort{{Name: new(name), Port: new(number)}}
		}
	}
	value := func(frontends, backends, hostnames, rest string) string {
		return `{"cluster":"cluster1","namespace":"test","name":"echo","frontends":` + frontends + `,"backends":` + backends + `,"hostnames":` + hostnames + `,` + rest + `"includeExternal":true,"shared":true,"clusterID":1}`
	}
	const (
		frontend = `{"10.96.0.10":{"http":{"Protocol":"TCP","Port":80}}}`
		backend  = `{"10.0.1.5":{"http":{"Protocol":"TCP","Port":8080}}}`
		meta     = `"labels":{"app":"echo"},"selector":{"app":"echo"},`
	)
	newest := cluster1
	newest.Release = release.Newest()
	for name, c := range map[string]struct {
		service     func(*corev1.Service)
		slices      slices
		terminating bool
		want        string
		invalid     int
	}{
		"SSYNC-E1":               {nil, slices{nil}, false, echo, 0},
		"SSYNC-E5, headless":     {service(func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "None", []string{"None"} }), slices{nil}, false, value(`{}`, backend, `{"10.0.1.5":"echo-0"}`, meta), 0},
		"SSYNC-E6, two slices":   {nil, slices{port("http", 8080), port("metrics", 9090)}, false, value(frontend, `{"10.0.1.5":{"http":{"Protocol":"TCP","Port":8080},"metrics":{"Protocol":"TCP","Port":9090}}}`, `{"10.0.1.5":"echo-0"}`, meta), 0},
		"SSYNC-E7, with":         {nil, terminating, true, value(frontend, backend, `{}`, meta), 0},
		"SSYNC-E7, without":      {nil, terminating, false, value(frontend, `{}`, `{}`, meta), 0},
		"SSYNC-E8, FQDN":         {nil, slices{func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }}, false, value(frontend, `{}`, `{}`, meta), 0},
		"SSYNC-E9, two ports":    {service(func(s *corev1.ServiceSpec) { s.Ports = append(s.Ports, corev1.ServicePort{Name: "http", Port: 81}) }), nil, false, value(frontend, `{}`, `{}`, meta), 0},
		"no slice":               {nil, nil, false, value(frontend, `{}`, `{}`, meta), 0},
		"no labels, no selector": {func(s *corev1.Service) { s.Labels, s.Spec.Selector = nil, nil }, nil, false, value(frontend, `{}`, `{}`, `"labels":{},"selector":{},`), 0},
		"markup":                 {func(s *corev1.Service) { s.Labels = map[string]string{"b": "<&>", "a": "é"} }, nil, false, value(frontend, `{}`, `{}`, `"labels":{"a":"é","b":"\u003c\u0026\u003e"},"selector":{"app":"echo"},`), 0},
		"two families": {service(func(s *corev1.ServiceSpec) { s.ClusterIPs = []string{"10.96.0.10", "fd00:0::A"} }), nil, false,
			value(`{"10.96.0.10":{"http":{"Protocol":"TCP","Port":80}},"fd00::a":{"http":{"Protocol":"TCP","Port":80}}}`, `{}`, `{}`, meta), 0},
		"no list of addresses": {service(func(s *corev1.ServiceSpec) { s.ClusterIPs = nil }), nil, false, value(frontend, `{}`, `{}`, meta), 0},
		"bad address": {service(func(s *corev1.ServiceSpec) { s.ClusterIPs = append(s.ClusterIPs, "nonsense", "fe80::1%eth0") }),
			slices{func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"bad", "10.0.1.5"} }}, false, value(frontend, backend, `{"10.0.1.5":"echo-0"}`, meta), 3},
		"several addresses": {nil, slices{func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.0.1.5", "10.0.1.6"} }}, false,
			value(frontend, `{"10.0.1.5":{"http":{"Protocol":"TCP","Port":8080}},"10.0.1.6":{"http":{"Protocol":"TCP","Port":8080}}}`, `{"10.0.1.5":"echo-0","10.0.1.6":"echo-0"}`, meta), 0},
		"IPv6": {nil, slices{func(s *discoveryv1.EndpointSlice) {
			s.AddressType, s.Endpoints[0].Addresses = discoveryv1.AddressTypeIPv6, []string{"fd00::5"}
		}}, false,
			value(frontend, `{"fd00::5":{"http":{"Protocol":"TCP","Port":8080}}}`, `{"fd00::5":"echo-0"}`, meta), 0},
		"ports": {nil, slices{func(s *discoveryv1.EndpointSlice) {
			s.Ports = []discoveryv1.EndpointPort{{Name: new("any")}, {Name: new("odd"), Port: new(int32(1)), Protocol: new(corev1.Protocol("ICMP"))}, {Port: new(int32(53)), Protocol: new(corev1.ProtocolUDP)}, {Name: new("s"), Port: new(int32(9)), Protocol: new(corev1.ProtocolSCTP)}}
		}}, false, value(frontend, `{"10.0.1.5":{"":{"Protocol":"UDP","Port":53},"s":{"Protocol":"SCTP","Port":9}}}`, `{"10.0.1.5":"echo-0"}`, meta), 0},
		"no ports":                 {nil, slices{func(s *discoveryv1.EndpointSlice) { s.Ports = nil }}, false, value(frontend, `{"10.0.1.5":{}}`, `{"10.0.1.5":"echo-0"}`, meta), 0},
		"one name, two numbers":    {nil, slices{port("http", 8080), func(s *discoveryv1.EndpointSlice) { port("http", 9)(s); s.Name = "echo-z" }}, false, value(frontend, backend, `{"10.0.1.5":"echo-0"}`, meta), 0},
		"conditions not known":     {nil, endpoint(discoveryv1.EndpointConditions{}), false, value(frontend, backend, `{}`, meta), 0},
		"not ready, serving empty": {nil, endpoint(discoveryv1.EndpointConditions{Ready: new(false)}), true, value(frontend, `{}`, `{}`, meta), 0},
		"ready, not serving":       {nil, endpoint(discoveryv1.EndpointConditions{Ready: new(true), Serving: new(false)}), false, value(frontend, backend, `{}`, meta), 0},
		"external address only": {service(func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs, s.ExternalIPs = "", nil, []string{"192.0.2.1"} }), nil, false,
			value(`{}`, `{}`, `{}`, meta), 0},
	} {
		var of []*endpointSlice
		for _, change := range c.slices {
			of = append(of, decodeSlice(t, change))
		}
		got, out := encode(decodeService(t, c.service), of, Config{EnableK8sTerminatingEndpoint: c.terminating}, cluster1)
		if string(got) != c.want || len(out.invalid) != c.invalid {
			t.Errorf("%s: %v\n got %s\nwant %s", name, out.invalid, got, c.want)
		}
		withOption, _ := encode(decodeService(t, c.service), of, Config{EnableK8sTerminatingEndpoint: true}, cluster1)
		want := strings.Replace(string(withOption), `"hostnames":{},`, "", 1)
		if always, _ := encode(decodeService(t, c.service), of, Config{}, newest); string(always) != want {
			t.Errorf("%s, from 1.18 on:\n got %s\nwant %s", name, always, want)
		}
	}
}

// SSYNC-3 and SSYNC-22, by release; numbers 17 to 19 of the contract's service-sync.md.
func TestEncodeByRelease(t *testing.T) {
	headless := decodeService(t, func(s *corev1.Service) { s.Labels[corev1.IsHeadlessService] = "" })
	zones := decodeSlice(t, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.1.5"}, Zone: new("z1"), Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}, {Name: "z3"}}}},
			{Addresses: []string{"10.0.1.6"}, Zone: new("z2")},
			{Addresses: []string{"10.0.1.7"}, DeprecatedTopology: map[string]string{corev1.LabelTopologyZone: "z2"}},
			{Addresses: []string{"10.0.1.8"}, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}}},
			{Addresses: []string{"10.0.1.9"}, Zone: new("a\tb\nc")}, // it would be taken apart
		}
	})
	const ofZones = `"zones":{"10.0.1.5":{"zone":"z1","forZones":[{"name":"z1"},{"name":"z3"}]},"10.0.1.6":{"zone":"z2","forZones":[]},"10.0.1.7":{"zone":"z2","forZones":[]}},`
	for i, r := range release.All() {
		of := cluster1
		of.Release = r
		value, out := encode(decodeService(t, nil), []*endpointSlice{zones}, Config{}, of)
		if has := strings.Contains(string(value), ofZones); has != (i >= 2) || strings.Contains(string(value), "zones") != has || out.beyond.some() {
			t.Errorf("%s: %+v, %s", r, out, value)
		}
		if has := strings.Contains(string(value), `"hostnames":{},`); has != (i < 2) {
			t.Errorf("%s: empty hostnames: %t", r, has)
		}
		value, _ = encode(headless, nil, Config{}, of)
		if has := strings.Contains(string(value), `"frontends":{},`); has != (i >= 1) {
			t.Errorf("%s: it is headless by its label: %t", r, has)
		}
	}
}

// SSYNC-21 and SSYNC-22: zones that do not fit are left out, and counted.
func TestZonesBeyondTheSizeOfAKey(t *testing.T) {
	slice := decodeSlice(t, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = nil
		for i := range 1000 {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.%d.%d", i>>8, i&0xff)}, Zone: new(fmt.Sprint(i, strings.Repeat("<", 1000)))})
		}
	})
	of := cluster1
	of.Release = release.Newest()
	value, out := encode(decodeService(t, nil), []*endpointSlice{slice}, Config{}, of)
	var v clusterService
	if err := json.Unmarshal(value, &v); err != nil {
		t.Fatal(err)
	}
	if len(value) > kvstore.MaxValue || len(v.Zones) == 0 || len(v.Backends)+out.beyond.backends != 1000 || len(v.Zones)+out.beyond.zones != len(v.Backends) {
		t.Errorf("%d bytes, %d backends, %d zones, left out %+v", len(value), len(v.Backends), len(v.Zones), out.beyond)
	}
}

// SSYNC-21, K8S-23: of an EndpointSlice with many addresses and ports, as many are exported as etcd accepts.
func TestBackendsBeyondTheSizeOfAKey(t *testing.T) {
	slice := decodeSlice(t, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints, s.Ports = nil, nil
		for i := range 500 {
			var addresses []string
			for j := range 100 {
				addresses = append(addresses, fmt.Sprintf("10.%d.%d.%d", i>>8, i&0xff, j))
			}
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: addresses})
		}
		for i := range 15_000 {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: new(fmt.Sprint("p", i)), Port: new(int32(i + 1))})
		}
	})
	value, out := encode(decodeService(t, nil), []*endpointSlice{slice, slice}, Config{}, cluster1)
	var v clusterService
	if err := json.Unmarshal(value, &v); err != nil {
		t.Fatal(err)
	}
	if len(value) > kvstore.MaxValue || len(v.Backends) == 0 || out.beyond.backends == 0 {
		t.Errorf("%d bytes, %d backends, %d left out", len(value), len(v.Backends), out.beyond.backends)
	}
	for ip, ports := range v.Backends {
		if len(ports) != 15_000 {
			t.Errorf("%s has %d ports", ip, len(ports))
		}
	}
}

// SSYNC-21; K3 of the contract's tenants.md: whatever a Service and its slices have, the value fits into a request of etcd, and uses most
// of it; what is left out is counted.
func TestValuesOfTheLargestObjects(t *testing.T) {
	text := func(prefix string, i, length int) string {
		s := prefix + strconv.Itoa(i)
		return s + strings.Repeat("x", length-len(s))
	}
	manyPorts := func(s *corev1.Service) {
		s.Spec.ClusterIPs = []string{"10.96.0.10", "fd00:1111:2222:3333:4444:5555:6666:7777"}
		s.Spec.Ports = nil
		for i := range 12_000 {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: text("p", i, 63), Protocol: corev1.ProtocolSCTP, Port: int32(i + 1)})
		}
	}
	manyLabels := func(s *corev1.Service) {
		s.Labels, s.Spec.Selector = map[string]string{}, map[string]string{}
		for i := range 8_000 {
			s.Labels[text("a", i, 60)], s.Spec.Selector[text("b", i, 60)] = text("v", i, 60), text("v", i, 60)
		}
	}
	manyHosts := func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = nil
		for i := range 60_000 {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.1", i>>8, i&0xff)}, Hostname: new(text("h", i, 12+i%50))})
		}
	}
	fewHosts := func(length int, name string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) {
			manyHosts(s)
			s.Name, s.Endpoints = name, s.Endpoints[:13_000]
			for i := range s.Endpoints {
				s.Endpoints[i].Hostname = new(text("h", i, length))
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*corev1.Service)
		slices []func(*discoveryv1.EndpointSlice)
		want   [5]bool // backends, hostnames, zones, ports, labels
		full   bool
	}{
		"ports":            {manyPorts, nil, [5]bool{false, false, false, true, false}, false},
		"labels":           {manyLabels, nil, [5]bool{false, false, false, false, true}, false},
		"hostnames":        {nil, []func(*discoveryv1.EndpointSlice){manyHosts}, [5]bool{true, true, false, false, false}, true},
		"longer hostnames": {nil, []func(*discoveryv1.EndpointSlice){fewHosts(12, "echo-a"), fewHosts(63, "echo-b")}, [5]bool{false, true, false, false, false}, true},
		"all":              {func(s *corev1.Service) { manyPorts(s); manyLabels(s) }, []func(*discoveryv1.EndpointSlice){manyHosts}, [5]bool{true, true, false, true, true}, true},
	} {
		var of []*endpointSlice
		for _, change := range c.slices {
			of = append(of, decodeSlice(t, change))
		}
		value, out := encode(decodeService(t, c.change), of, Config{}, cluster1)
		if !json.Valid(value) || len(value) > kvstore.MaxValue || c.full && len(value) < kvstore.MaxValue-20_000 {
			t.Errorf("%s: %d bytes of %d", name, len(value), kvstore.MaxValue)
		}
		if got := out.beyond.kinds(); got != c.want {
			t.Errorf("%s: left out are %+v", name, out.beyond)
		}
	}
}
