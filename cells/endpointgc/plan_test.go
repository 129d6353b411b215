// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"errors"
	"strings"
	"testing"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// endpoint is one in the namespace ns whose owners are written as Kind/name.
func endpoint(name string, owners ...string) *ciliumio.Endpoint {
	e := &ciliumio.Endpoint{}
	e.Name, e.Namespace, e.UID = name, slim.MakeString("ns"), slim.ParseUID(name)
	for _, o := range owners {
		kind, owner, _ := strings.Cut(o, "/")
		e.Owners = append(e.Owners, slim.OwnerReference{Kind: slim.MakeString(kind), Name: owner})
	}
	return e
}

// there is what examples have: pods that run and have finished, and a node.
var there = map[owner]ownerState{
	{kindPod, slim.Key{Namespace: "ns", Name: "p-run"}}:  alive,
	{kindPod, slim.Key{Namespace: "ns", Name: "p-done"}}: finished,
	{kindPod, slim.Key{Namespace: "ns", Name: "p-fail"}}: finished,
	{kindNode, slim.Key{Name: "node1"}}:                  alive,
}

func lookup(w owner) (ownerState, error) { return there[w], nil }

// examples are those of docs/wire/endpointgc.md, EPGC-E1 to EPGC-E11, and more of EPGC-3.
var examples = []struct {
	name    string
	owners  []string
	garbage bool
}{
	{"x1", []string{"Pod/gone"}, true},
	{"x2", []string{"Pod/p-run"}, false},
	{"x3", []string{"Pod/p-done"}, true},
	{"p-run", nil, false},
	{"x5", nil, true},
	{"x6", []string{"CiliumNode/node1"}, false},
	{"x7", []string{"CiliumNode/gone"}, true},
	{"p-fail", nil, true},
	{"x9", []string{"Deployment/d"}, false},
	{"p-run", []string{"Pod/gone"}, true},
	{"x11", []string{"Pod/gone", "CiliumNode/node1"}, false},

	{"two pods, the second runs", []string{"Pod/gone", "Pod/p-run"}, false},
	{"two pods, the first has finished", []string{"Pod/p-done", "Pod/p-run"}, true},
	{"p-run", []string{"CiliumNode/gone"}, false},
	{"p-done", []string{"CiliumNode/gone"}, true},
	{"x11 without its node", []string{"Pod/gone", "CiliumNode/gone"}, true},
	{"unknown after gone", []string{"Pod/gone", "Job/j"}, false},
	{"unknown after finished", []string{"Pod/p-done", "Job/j"}, true},
	{"a pod of another namespace", []string{"Pod/other"}, true},
}

// EPGC-2, EPGC-3 and EPGC-4. Of number 24 of the contract's endpoint-gc.md, x11: it is kept while its CiliumNode is there, in all releases,
// and not any longer.
func TestJudge(t *testing.T) {
	for _, x := range examples {
		e := endpoint(x.name, x.owners...)
		garbage, why, err := isGarbage(e, lookup)
		if garbage != x.garbage || err != nil || garbage != (why != "") {
			t.Errorf("%s owned by %v: garbage %t (%s), want %t; %v", x.name, x.owners, garbage, why, x.garbage, err)
		}
	}
}

// EPGC-9: what cannot be asked keeps the endpoint.
func TestJudgeWithoutAnswer(t *testing.T) {
	away := errors.New("no answer")
	for _, x := range examples {
		e := endpoint(x.name, x.owners...)
		asked := false
		garbage, _, err := isGarbage(e, func(owner) (ownerState, error) { asked = true; return absent, away })
		if garbage || asked != errors.Is(err, away) {
			t.Errorf("%s owned by %v: garbage %t, %v", x.name, x.owners, garbage, err)
		}
	}
}

// EPGC-6.
func TestPhases(t *testing.T) {
	for phase, want := range map[string]ownerState{
		"": alive, "Pending": alive, "Running": alive, "Unknown": alive, "Whatever": alive, "Succeeded": finished, "Failed": finished,
	} {
		if got := podState(phase); got != want {
			t.Errorf("phase %q: %d, want %d", phase, got, want)
		}
	}
}

// Number 23 of the contract's endpoint-gc.md; EPGC-11; EPGC-E18.
func TestYoung(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]bool{20 * time.Second: true, 4 * time.Minute: true, 6 * time.Minute: false, 5 * time.Minute: false, time.Hour: false, -time.Hour: true} {
		e := endpoint("x")
		e.CreationTimestamp = slim.MakeTime(now.Add(-age))
		if got := young(e, now, 5*time.Minute); got != want {
			t.Errorf("%s old: young %t", age, got)
		}
	}
	if young(endpoint("x"), now, time.Minute) {
		t.Error("one that does not say when it was made is young for ever")
	}
}

func pod(name, uid, phase string, ips ...string) *slim.Pod {
	p := &slim.Pod{}
	p.Name, p.Namespace, p.UID, p.Status.Phase = name, slim.MakeString("ns"), slim.ParseUID(uid), slim.MakeString(phase)
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, slim.PodIP{IP: slim.ParseAddr(ip)})
	}
	return p
}

// EPGC-5; EPGC-E19.
func TestStaleOwner(t *testing.T) {
	e := endpoint("web-0", "CiliumNode/node1", "Pod/web-0")
	e.Owners[1].UID = slim.ParseUID("A")
	for _, test := range []struct {
		pod  *slim.Pod
		want bool
	}{
		{nil, false},
		{pod("web-0", "A", "Running"), false},
		{pod("web-0", "B", "Running"), true},
		{pod("web-0", "B", "Succeeded"), false},
	} {
		i, _, stale := staleOwner(e, func(slim.Key) *slim.Pod { return test.pod })
		if stale != test.want || stale && i != 1 {
			t.Errorf("%+v: owner %d is stale: %t, want %t", test.pod, i, stale, test.want)
		}
	}
}

// EPGC-5 and EPGC-18.
func TestAddresses(t *testing.T) {
	for _, test := range []struct {
		endpoint, pod []string // v4, v6
		same, foreign bool
	}{
		{[]string{"10.0.0.1", "fd00::1"}, []string{"10.0.0.1", "fd00::1"}, true, false},
		{[]string{"10.0.0.1", "fd00::1"}, []string{"fd00::1", "10.0.0.1"}, true, false},
		{[]string{"10.0.0.1", ""}, []string{"10.0.0.1", "fd00::1"}, false, false},
		{[]string{"10.0.0.1", "fd00::1"}, []string{"10.0.0.1"}, false, false},
		{[]string{"10.0.0.1", ""}, []string{"10.0.0.2"}, false, true},
		{[]string{"", ""}, []string{"10.0.0.2"}, false, false},
		{[]string{"10.0.0.1", ""}, nil, false, false},
		{[]string{"", ""}, nil, false, false},
	} {
		e := endpoint("x")
		e.Status.Networking = ciliumio.PackNetworking(&v2.EndpointNetworking{Addressing: []v2.AddressPair{{IPv4: test.endpoint[0], IPv6: test.endpoint[1]}}})
		p := pod("x", "A", "Running", test.pod...)
		if got := sameAddresses(e, p); got != test.same {
			t.Errorf("%v and %v: the same %t", test.endpoint, test.pod, got)
		}
		if got := foreign(e, p); got != test.foreign {
			t.Errorf("%v and %v: foreign %t", test.endpoint, test.pod, got)
		}
	}
}

// EPGC-9: an endpoint that cannot be judged stays, and no other field matters.
func TestSurveyOfWhatCannotBeDecoded(t *testing.T) {
	codec, err := slim.JSON[ciliumio.Endpoint]()
	if err != nil {
		t.Fatal(err)
	}
	for text, garbage := range map[string]bool{
		`{"metadata":{"name":"a","namespace":"ns"}}`:                                                   true,
		`{"metadata":{"name":"a","namespace":"ns","ownerReferences":{}}}`:                              false,
		`{"metadata":{"name":"a","namespace":"ns","ownerReferences":[{"kind":"Pod","name":7}]}}`:       false,
		`{"metadata":{"name":"a","namespace":"ns","creationTimestamp":"lately"}}`:                      false,
		`{"metadata":{"name":"a","namespace":"ns"},"status":"none"}`:                                   true,
		`{"metadata":{"name":"a","namespace":"ns"},"status":{"networking":{"addressing":"10.0.0.1"}}}`: true,
	} {
		e := &ciliumio.Endpoint{}
		if err := codec.DecodeJSON([]byte(text), e); err != nil {
			t.Fatal(err)
		}
		endpoints, pods, nodes := local[ciliumio.Endpoint](t), local[slim.Pod](t), local[ciliumio.Node](t)
		endpoints.Upsert(e)
		v, err := params{Endpoints: endpoints, Pods: pods, Nodes: nodes}.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if found, _ := v.scan(time.Now(), time.Minute); len(found.Candidates) == 1 != garbage {
			t.Errorf("%s: %d candidates", text, len(found.Candidates))
		}
	}
}
