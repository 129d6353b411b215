// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// decode decodes an object as a stream does.
func decode[T any](t testing.TB, obj any) *T {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	into := new(T)
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
	if trimmer, ok := any(into).(interface{ Trim() }); ok {
		trimmer.Trim()
	}
	return into
}

func decodeService(t testing.TB, change func(*corev1.Service)) *service {
	t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "93dba9e7-8d4e-4c83-8a2e-000000000001", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{globalAnnotation: "true", syncAnnotation: "True"},
		},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"},
	}
	if change != nil {
		change(s)
	}
	return decode[service](t, s)
}

func remote(ips ...string) *clustermesh.Service {
	s := &clustermesh.Service{Backends: map[string]clustermesh.Ports{}, Hostnames: map[string]string{}, Shared: true}
	for _, ip := range ips {
		s.Backends[ip] = clustermesh.Ports{"port-name": {Protocol: "TCP", Port: 42}}
	}
	return s
}

// ESS-E1: the slice of the contract.
func TestSlice(t *testing.T) {
	headless := decodeService(t, func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone })
	backends := remote("42.42.42.42")
	backends.Hostnames["42.42.42.42"] = "web-0"
	p := planFor(headless, "cluster-1", backends, nil, bounds{endpoints: 100})
	if len(p.create) != 1 || len(p.update)+len(p.remove) > 0 || p.slices != 1 || p.endpoints != 1 || p.added != 1 {
		t.Fatalf("%+v", p)
	}
	got, err := yaml.Marshal(p.create[0])
	if err != nil {
		t.Fatal(err)
	}
	const want = `addressType: IPv4
endpoints:
- addresses:
  - 42.42.42.42
  conditions:
    ready: true
    serving: true
    terminating: false
  hostname: web-0
  nodeName: cluster-1
  targetRef:
    apiVersion: cilium.io
    kind: store.ClusterService
    name: fake-pod-42.42.42.42
    namespace: shop
  zone: cluster-1
metadata:
  generateName: web-cluster-1-
  labels:
    app: web
    endpointslice.kubernetes.io/managed-by: endpointslice-mesh-controller.cilium.io
    kubernetes.io/service-name: web
    multicluster.kubernetes.io/source-cluster: cluster-1
    service.kubernetes.io/headless: ""
  name: web-cluster-1-ihgvt3h3
  namespace: shop
  ownerReferences:
  - apiVersion: v1
    blockOwnerDeletion: true
    controller: true
    kind: Service
    name: web
    uid: 93dba9e7-8d4e-4c83-8a2e-000000000001
ports:
- name: port-name
  port: 42
  protocol: TCP
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	again := planFor(headless, "cluster-1", backends, stored(t, p.create...), bounds{endpoints: 100})
	if n := len(again.create) + len(again.update) + len(again.remove); n > 0 {
		t.Errorf("of an equal slice: %+v", again)
	}
}

func stored(t testing.TB, all ...*discoveryv1.EndpointSlice) (slices []*meshSlice) {
	t.Helper()
	for _, s := range all {
		slices = append(slices, decode[meshSlice](t, s))
	}
	return slices
}

// ESS-1: which Services participate.
func TestParticipates(t *testing.T) {
	for _, test := range []struct {
		annotations map[string]string
		clusterIP   string
		want        bool
	}{
		{nil, "10.0.0.1", false},
		{map[string]string{globalAnnotation: "true"}, "10.0.0.1", false},
		{map[string]string{globalAnnotation: "TRUE"}, "None", true},
		{map[string]string{globalAnnotation: "true", syncAnnotation: "false"}, "None", false},
		{map[string]string{globalAnnotation: "true", syncAnnotation: "True"}, "10.0.0.1", true},
		{map[string]string{"io.cilium/global-service": "true", syncAnnotation: "true"}, "None", false},
		{map[string]string{globalAnnotation: "false", syncAnnotation: "true"}, "None", false},
	} {
		s := decodeService(t, func(s *corev1.Service) { s.Annotations, s.Spec.ClusterIP = test.annotations, test.clusterIP })
		if got := s.participates(); got != test.want {
			t.Errorf("%v, %s: %t", test.annotations, test.clusterIP, got)
		}
	}
}

// ESS-4, ESS-5: one set of slices for each family and each set of ports.
func TestGroups(t *testing.T) {
	b := remote("10.0.0.1", "10.0.0.2", "fd00::1", "no address")
	b.Backends["10.0.0.2"] = clustermesh.Ports{"other": {Protocol: "UDP", Port: 53}, "port-name": {Protocol: "TCP", Port: 42}}
	p := planFor(decodeService(t, nil), "c", b, nil, bounds{endpoints: 100})
	var got []string
	for _, s := range p.create {
		got = append(got, fmt.Sprint(s.AddressType, " ", s.Endpoints[0].Addresses[0], " ", len(s.Ports)))
	}
	if want := []string{"IPv4 10.0.0.2 2", "IPv4 10.0.0.1 1", "IPv6 fd00::1 1"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	v4 := decodeService(t, func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol} })
	supported := decodeService(t, func(s *corev1.Service) {
		s.Spec.IPFamilies, s.Annotations[familiesAnnotation] = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}, "IPv4"
	})
	if supported.hasFamily(discoveryv1.AddressTypeIPv6) || !supported.hasFamily(discoveryv1.AddressTypeIPv4) {
		t.Error("ESS-5: the annotation does not count")
	}
	if p := planFor(v4, "c", b, nil, bounds{endpoints: 100}); len(p.create) != 2 {
		t.Errorf("of a Service with IPv4 alone: %d", len(p.create))
	}
}

// ESS-16: what the API server would refuse is left out, and what is beside it is not.
func TestRefused(t *testing.T) {
	b := remote("10.0.0.1", "127.0.0.1", "0.0.0.0", "169.254.1.1", "::1", "fe80::1", "ff02::1", "fe80::1%eth0", "::ffff:127.0.0.1")
	b.Hostnames = map[string]string{"10.0.0.1": "Not A Name"}
	b.Backends["10.0.0.1"] = clustermesh.Ports{
		"good": {Protocol: "TCP", Port: 42}, "": {Protocol: "SCTP", Port: 43}, "Not A Name": {Protocol: "TCP", Port: 44}, "odd": {Protocol: "ICMP", Port: 45}, "none": {Protocol: "UDP"},
	}
	p := planFor(decodeService(t, nil), "c", b, nil, bounds{endpoints: 100})
	if len(p.create) != 1 || len(p.create[0].Endpoints) != 1 || p.create[0].Endpoints[0].Hostname != nil || len(p.create[0].Ports) != 2 {
		t.Errorf("%+v", p.create)
	}
}

// ESS-6 to ESS-8: over any history every endpoint is in exactly one slice, none is too large, endpoints stay where they are,
// and a second plan is empty.
func TestHistories(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		most := 1 + r.IntN(5)
		s := decodeService(t, nil)
		var world []*meshSlice
		for range 10 {
			backends := remote()
			for i := range 12 {
				if r.IntN(2) == 0 {
					ip := fmt.Sprintf("10.0.0.%d", i)
					backends.Backends[ip] = clustermesh.Ports{"p": {Protocol: "TCP", Port: uint16(1 + r.IntN(2))}}
				}
			}
			before := map[string]string{}
			for _, slice := range world {
				for _, e := range slice.Endpoints {
					before[e.Addresses[0]+groupOf(slice).ports] = slice.Name
				}
			}
			p := planFor(s, "c", backends, world, bounds{endpoints: most})
			world = apply(t, world, p)
			seen := map[string]bool{}
			for _, slice := range world {
				if len(slice.Endpoints) == 0 || len(slice.Endpoints) > most {
					t.Fatalf("seed %d: %d endpoints in a slice of %d", seed, len(slice.Endpoints), most)
				}
				for _, e := range slice.Endpoints {
					ip, g := e.Addresses[0], groupOf(slice)
					if seen[ip] || portText(backends.Backends[ip]) != g.ports {
						t.Fatalf("seed %d: %s is twice there, or with other ports", seed, ip)
					}
					seen[ip] = true
					if was := before[ip+g.ports]; was != "" && was != slice.Name {
						t.Fatalf("seed %d: %s moved from %s to %s", seed, ip, was, slice.Name)
					}
				}
			}
			if len(seen) != len(backends.Backends) || p.endpoints != len(seen) || p.slices != len(world) {
				t.Fatalf("seed %d: %d of %d endpoints, plan %+v", seed, len(seen), len(backends.Backends), p)
			}
			if again := planFor(s, "c", backends, world, bounds{endpoints: most}); len(again.create)+len(again.update)+len(again.remove) > 0 {
				t.Fatalf("seed %d: a second plan is not empty: %+v", seed, again)
			}
		}
	}
}

// apply carries out a plan.
func apply(t testing.TB, world []*meshSlice, p plan) []*meshSlice {
	t.Helper()
	names := map[string]*meshSlice{}
	for _, s := range world {
		names[s.Name] = s
	}
	for _, s := range p.create {
		if names[s.Name] != nil {
			t.Fatalf("%s exists", s.Name)
		}
		names[s.Name] = stored(t, s)[0]
	}
	for _, c := range p.update {
		c.want.Name = c.is.Name
		names[c.is.Name] = stored(t, c.want)[0]
	}
	for _, s := range p.remove {
		delete(names, s.Name)
	}
	world = nil
	for _, s := range names {
		world = append(world, s)
	}
	return world
}

// ESS-15: before Services are fresh, nothing is deleted, and no slice gets another owner.
func TestHold(t *testing.T) {
	was := decodeService(t, nil)
	slice := func(cluster string) *meshSlice {
		return decode[meshSlice](t, newSlice(was, cluster, remote("10.2.0.1"), group{discoveryv1.AddressTypeIPv4, portText(remote("10.2.0.1").Backends["10.2.0.1"])}, []string{"10.2.0.1"}))
	}
	isNew := decodeService(t, func(s *corev1.Service) { s.UID = "93dba9e7-8d4e-4c83-8a2e-000000000002" })
	for name, test := range map[string]struct {
		service *service
		remote  *clustermesh.Service
		held    bool
		left    int // writes
	}{
		"no Service":        {nil, nil, true, 0},
		"another Service":   {isNew, remote("10.2.0.1"), true, 0},
		"an endpoint more":  {was, remote("10.2.0.1", "10.2.0.2"), false, 1},
		"no endpoint":       {was, remote(), true, 0},
		"nothing has to be": {was, remote("10.2.0.1"), false, 0},
	} {
		p := planFor(test.service, "a", test.remote, []*meshSlice{slice("a")}, bounds{endpoints: 10})
		if held := p.hold(); held != test.held || len(p.create)+len(p.update)+len(p.remove) != test.left {
			t.Errorf("%s: held %t, left %+v", name, held, p)
		}
	}
}

// ESS-7: an endpoint that two slices have, as after an edit, is in one of them afterwards; other labels and owners are
// replaced.
func TestEditedSlices(t *testing.T) {
	s, b := decodeService(t, nil), remote("10.0.0.1")
	p := planFor(s, "c", b, nil, bounds{endpoints: 100})
	world := stored(t, p.create[0], p.create[0])
	world[1].Name = "zzz"
	world[0].Labels = slim.MakeLabels(map[string]string{"app": "other"})
	p = planFor(s, "c", b, world, bounds{endpoints: 100})
	if len(p.update) != 1 || len(p.remove) != 1 || p.remove[0].Name != "zzz" || p.update[0].want.Labels["app"] != "web" {
		t.Errorf("%+v", p)
	}
}

// ESS-17; numbers 8.1 of the contract's tenants.md: a remote cluster has a bounded number of new slices, however it groups its endpoints. Those
// that exist stay, and go on with their endpoints.
func TestSlicesAreBounded(t *testing.T) {
	s, b := decodeService(t, nil), remote()
	for i := range 50 { // each with ports of its own
		b.Backends[fmt.Sprintf("10.0.0.%d", i)] = clustermesh.Ports{"http": {Protocol: "TCP", Port: uint16(1000 + i)}}
	}
	p := planFor(s, "c", b, nil, bounds{100, 8, nil})
	if len(p.create) != 8 || p.slices != 8 || p.endpoints != 8 || p.left != 42 {
		t.Fatalf("%d slices, %d endpoints, %d left out", len(p.create), p.endpoints, p.left)
	}
	world := stored(t, p.create...)
	if again := planFor(s, "c", b, world, bounds{100, 8, nil}); len(again.create)+len(again.update)+len(again.remove) > 0 || again.left != 42 {
		t.Errorf("a second plan: %+v", again)
	}
	if lower := planFor(s, "c", b, world, bounds{100, 3, nil}); len(lower.create)+len(lower.update)+len(lower.remove) > 0 || lower.left != 42 {
		t.Errorf("with a lower bound: %+v", lower)
	}
	delete(b.Backends, world[0].Endpoints[0].Addresses[0])
	if next := planFor(s, "c", b, world, bounds{100, 8, nil}); len(next.create) != 1 || len(next.remove) != 1 || next.left != 41 {
		t.Errorf("when one goes: %+v", next)
	}
	if all := planFor(s, "c", b, world, bounds{100, 0, nil}); len(all.create) != 49-7 || all.left > 0 {
		t.Errorf("without a bound: %d, %d left out", len(all.create), all.left)
	}
}

// ESS-16, K4 of the contract's tenants.md: what no pod can have is no endpoint, whatever a remote cluster says.
func TestAddressesThatNoPodHas(t *testing.T) {
	for text, want := range map[string]bool{
		"10.1.2.3": true, "fd00::1": true, "8.8.8.8": true, "2001:db8::1": true,
		"0.0.0.0": false, "::": false, "127.0.0.1": false, "::1": false, "169.254.169.254": false, "fe80::1": false,
		"224.0.0.1": false, "239.1.1.1": false, "ff0e::1": false, "ff02::1": false, "255.255.255.255": false, "fd00::1%eth0": false,
	} {
		if got := isEndpoint(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// large is a slice of ours into which another has written as many addresses as the API server accepts.
func large(t *testing.T, name string) *meshSlice {
	t.Helper()
	of := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Labels: map[string]string{
			discoveryv1.LabelManagedBy: manager, discoveryv1.LabelServiceName: "web", clusterLabel: "cluster-1",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i := range 1000 {
		e := discoveryv1.Endpoint{}
		for j := range 100 {
			e.Addresses = append(e.Addresses, fmt.Sprintf("10.%d.%d.%d", i>>8, i&0xff, j))
		}
		of.Endpoints = append(of.Endpoints, e)
	}
	for i := range 1000 {
		of.Labels[fmt.Sprintf("example.com/%050d", i)] = fmt.Sprintf("%060d", i)
		of.OwnerReferences = append(of.OwnerReferences, metav1.OwnerReference{Kind: "Service", Name: fmt.Sprint("s", i), UID: "u"})
	}
	return decode[meshSlice](t, of)
}

// ESS-18, K8S-24: a slice of ours can be cut down to whose it is. While one is, the slices of its Service and cluster stay, and none is made:
// it is not known which endpoints it has. Once none are wanted, all are deleted.
func TestCutSlices(t *testing.T) {
	s, cut := decodeService(t, nil), large(t, "web-cluster-1-large")
	whole := slim.SizeOf(cut)
	if !slim.CutDown(cut, whole) || slim.SizeOf(cut) > 2<<10 || whole < 1<<20 {
		t.Fatalf("of %d bytes %d stay", whole, slim.SizeOf(cut))
	}
	if serviceOf(cut) != s.Key() || cut.Labels.Get(clusterLabel) != "cluster-1" {
		t.Fatalf("it is of %s in %q", serviceOf(cut), cut.Labels.Get(clusterLabel))
	}
	existing := append(stored(t, planFor(s, "cluster-1", remote("10.1.1.1"), nil, bounds{endpoints: 100}).create...), cut)
	if p := planFor(s, "cluster-1", remote("10.1.1.2"), existing, bounds{endpoints: 100}); !p.isCut || p.slices != 2 || len(p.create)+len(p.update)+len(p.remove) > 0 {
		t.Errorf("with a cut slice: %+v", p)
	}
	for what, p := range map[string]plan{
		"no Service":        planFor(nil, "cluster-1", nil, existing, bounds{endpoints: 100}),
		"no remote service": planFor(s, "cluster-1", nil, existing, bounds{endpoints: 100}),
	} {
		if p.isCut || len(p.remove) != 2 {
			t.Errorf("%s: %+v", what, p)
		}
	}
	if p := planFor(s, "cluster-1", remote("10.1.1.1"), existing[:1], bounds{endpoints: 100}); p.isCut {
		t.Errorf("once it is gone: %+v", p)
	}
}

// ESS-18, K8S-24: the slices of a Service that is cut stay.
func TestCutService(t *testing.T) {
	s := decodeService(t, func(s *corev1.Service) {
		for i := range 5000 {
			s.Labels[fmt.Sprintf("example.com/%050d", i)] = fmt.Sprintf("%060d", i)
		}
	})
	if !slim.CutDown(s, slim.SizeOf(s)) || slim.SizeOf(s) > 1<<10 || !s.participates() {
		t.Fatalf("%d bytes are kept of it", slim.SizeOf(s))
	}
	all, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	all.Replace(s)
	c := newController(params{})
	if c.services, err = all.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Reconcile(t.Context(), s.Key()); err != nil || r.Reason != isHidden { // neither slices nor clusters are looked for
		t.Errorf("%+v, %v", r, err)
	}
}
