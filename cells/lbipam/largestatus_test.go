// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// swollen is a Service into whose status another has written so many addresses and conditions; ours are among them.
func swollen(t *testing.T, n int) (*unstructured.Unstructured, *serviceObject) {
	t.Helper()
	var entries, conditions []any
	for i := range n {
		entries = append(entries, map[string]any{"ip": fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)})
		conditions = append(conditions, map[string]any{"type": fmt.Sprint("example.com/", i), "status": "True", "reason": "R", "message": "m"})
	}
	conditions = append(conditions, map[string]any{"type": conditionSatisfied, "status": statusFalse, "reason": reasonNoPool, "message": "m"})
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "5"},
		"spec":   map[string]any{"type": "LoadBalancer"},
		"status": map[string]any{"loadBalancer": map[string]any{"ingress": entries}, "conditions": conditions},
	}}
	text, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	codec, err := slim.JSON[serviceObject]()
	if err != nil {
		t.Fatal(err)
	}
	o := &serviceObject{}
	if err := codec.DecodeJSON(text, o); err != nil {
		t.Fatal(err)
	}
	return u, o
}

// LBIP-39, K8S-24: of a status that others have filled the first entries are kept. It is written in a few operations, after which it is as it is to
// be. That of a Service of another controller is left alone.
func TestSwollenStatus(t *testing.T) {
	u, o := swollen(t, 50_000)
	if size := slim.SizeOf(o); size > 128<<10 {
		t.Errorf("%d bytes are kept", size)
	}
	if shown := shownAddrs(o); len(shown) != mostEntries || !slices.ContainsFunc(o.Status.Conditions, isSatisfied) {
		t.Errorf("%d addresses are shown, and conditions are %v", len(shown), o.Status.Conditions)
	}
	ours := netip.MustParseAddr("10.0.0.7")
	want := wanted{
		addrs: []netip.Addr{ours}, ingress: func(a netip.Addr) bool { return a == ours },
		conditions: []wantedCondition{{kind: conditionSatisfied, status: statusTrue, reason: reasonSatisfied}},
	}
	if want.shows(o.Status.LoadBalancer.Ingress, o.Status.Conditions) {
		t.Fatal("it has what is wanted")
	}
	ops := difference(o.Status.LoadBalancer.Ingress, o.Status.Conditions, want, time.Time{})
	if len(ops) != 2 {
		t.Fatalf("%d operations", len(ops))
	}
	if err := apply(u, ops); err != nil {
		t.Fatal(err)
	}
	status, err := statusOf(u)
	if err != nil || len(status.LoadBalancer.Ingress) != 1 || status.LoadBalancer.Ingress[0].IP != "10.0.0.7" || len(status.Conditions) != 1 {
		t.Errorf("it is %+v (%v)", status, err)
	}
	if !want.shows(status.LoadBalancer.Ingress, status.Conditions) {
		t.Error("it has not what is wanted")
	}
	foreign := wanted{ingress: func(netip.Addr) bool { return true }, foreign: true, absent: []string{conditionSatisfied}}
	if ops := difference(o.Status.LoadBalancer.Ingress, o.Status.Conditions, foreign, time.Time{}); len(ops) > 0 {
		t.Errorf("of another controller's: %v", ops)
	}
	_, o = swollen(t, mostConditions-1)
	if ops := difference(o.Status.LoadBalancer.Ingress, o.Status.Conditions, foreign, time.Time{}); len(ops) != 1 || len(o.Status.Conditions) != mostConditions {
		t.Errorf("what is not too many: %v", ops)
	}
}

// The status of an object that is read again before it is written is no larger.
func TestSwollenStatusIsReadAgain(t *testing.T) {
	u, _ := swollen(t, 50_000)
	status, err := statusOf(u)
	if err != nil || len(status.LoadBalancer.Ingress) != mostEntries+1 || len(status.Conditions) != 2 {
		t.Errorf("%d entries and %d conditions (%v)", len(status.LoadBalancer.Ingress), len(status.Conditions), err)
	}
}

// LBIP-32, LBIP-39: a Service may name as many addresses as are read of a status, whatever the option allows; what it shows beyond that stays.
func TestAllThatAServiceMayHaveIsRead(t *testing.T) {
	for option, most := range map[int]int{0: mostRequested, 4: 4, 100_000: mostRequested} {
		_, o := swollen(t, mostRequested+100)
		var names []string
		for _, a := range shownAddrs(o) {
			names = append(names, a.String())
		}
		o.Annotations.Labels = slim.MakeLabels(map[string]string{requestAnnotation: strings.Join(names, ",")})
		shared := cluster.Config{EnableIPv4: true}
		r := newSettings(Config{LBIPAMMaxRequested: option}, shared).parseRequest(o, shownAddrs(o))
		if len(r.ips) != most || len(r.had) != mostRequested+100-most || r.beyond != 0 {
			t.Errorf("with %d, %d are requested, %d stay, and %d are too many", option, len(r.ips), len(r.had), r.beyond)
		}
	}
}

// LBIP-20, LBIP-38, LBIP-40; number 4.2 of the contract's tenants.md: what the status of a Service shows that asks for none of it is withheld up to a bound: any
// writer of the status may have put it there before a leader began.
func TestStatusesThatAskForNothing(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*serviceObject)
		want   int
	}{
		"of another controller": {func(o *serviceObject) { o.Spec.LoadBalancerClass = slim.MakeString("example.com/x") }, mostLeft},
		"names none that is one": {func(o *serviceObject) {
			o.Annotations.Labels = slim.MakeLabels(map[string]string{requestAnnotation: "x"})
		}, mostLeft + 1},
	} {
		_, o := swollen(t, 300)
		test.change(o)
		p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/16")))
		p.upsertService(o)
		p.markSynced()
		p.storeWrites()
		if used := p.pools["p"].addresses.Used().String(); used != fmt.Sprint(test.want) {
			t.Errorf("%s: %s addresses are withheld", name, used)
		}
	}
}
