// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// K8S-26, K3 of the contract's tenants.md: a write of the status of an Ingress with as many paths as the API server accepts needs a small part of what its spec
// would be in memory, and leaves the spec as it is.
func TestStatusesOfLargeObjects(t *testing.T) {
	const paths = 30_000
	d := newDesk(t)
	ingresses := networkingv1.SchemeGroupVersion.WithResource("ingresses")
	exact := networkingv1.PathTypeExact
	path := networkingv1.HTTPIngressPath{Path: "/", PathType: &exact, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 1}}}}
	rule := networkingv1.IngressRule{IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{}}}
	for range paths {
		rule.HTTP.Paths = append(rule.HTTP.Paths, path)
	}
	api := admin(t, d.cluster).NetworkingV1().Ingresses(d.namespace)
	before, err := api.Create(t.Context(), &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{rule}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ref := Ref{Resource: ingresses, Namespace: d.namespace, Name: "x", Subresource: "status", UID: before.UID}
	set := func(ip string) func(*networkingv1.Ingress) error {
		return func(i *networkingv1.Ingress) error {
			i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: ip}}
			return nil
		}
	}
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	written, err := Update(why(t), d, ref, set("192.0.2.1"))
	runtime.ReadMemStats(&end)
	if used := (end.TotalAlloc - start.TotalAlloc) >> 20; err != nil || !written || used > 48 { // one copy of the spec alone is 44 MiB
		t.Errorf("written: %v, %v; %d MiB were allocated", written, err, used)
	}
	if written, err = Update(why(t), d, ref, set("192.0.2.1")); err != nil || written {
		t.Errorf("the same again: written: %v, %v", written, err)
	}
	if _, err := Update(WithWholeObjects(why(t)), d, ref, func(i *networkingv1.Ingress) error {
		if len(i.Spec.Rules) != 1 || len(i.Spec.Rules[0].HTTP.Paths) != paths {
			t.Error("an edit that needs the spec does not see it")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	after, err := api.Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil || !reflect.DeepEqual(after.Spec, before.Spec) || len(after.Status.LoadBalancer.Ingress) != 1 {
		t.Errorf("the spec was changed, or the status not: %v, %v", after.Status, err)
	}
	ref.UID = ""
	patch := fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"replace","path":"/status/loadBalancer/ingress/0/ip","value":"192.0.2.2"}]`, before.UID)
	runtime.ReadMemStats(&start)
	stored, err := d.Patch(why(t), ref, []byte(patch))
	runtime.ReadMemStats(&end)
	if used := (end.TotalAlloc - start.TotalAlloc) >> 20; err != nil || stored.Object["spec"] != nil || used > 32 {
		t.Errorf("of a patch %d MiB were allocated: %v", used, err)
	}
}

// K8S-26: the fields at the root of an object are found in its text.
func FuzzRootFields(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { "a" : 1 , "b":{"c":"}\"]"},"d":[[],{}], "e":"x\\", "f":null,"g":-1e3 } `, `{"a":{"b":1}`, `[]`, `{"a"}`, `{"a":}`, `{"a\u0062":true}`, `{"a":1}{"b":2}`, `"`, ``, `{"a":"\"`, `{"a":1,"a":2}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) != nil || want == nil {
			rootFields(text) // which ends
			return
		}
		got := rootFields(text)
		if len(got) != len(want) {
			t.Fatalf("%q: %d fields, want %d", text, len(got), len(want))
		}
		for name, value := range want {
			if !bytes.Equal(bytes.TrimSpace(value), got[name]) {
				t.Errorf("%q: %s is %q, want %q", text, name, got[name], value)
			}
		}
	})
}

// K8S-26: small objects, lists and what is no object stay as they are; what is sent has what was read.
func TestRemainder(t *testing.T) {
	r := &remainder{}
	long := strings.Repeat("x", largeBody)
	for _, body := range []string{`{"kind":"X","spec":{}}`, `{"kind":"XList","items":["` + long + `"]}`, `["` + long + `"]`, `{"spec":"` + long} {
		if got := string(r.fold([]byte(body))); got != body || len(r.fields) > 0 {
			t.Errorf("%.30q becomes %.30q", body, got)
		}
	}
	large := `{"apiVersion":"v1","kind":"X","metadata":{"name":"x"},"spec":{"of":"` + long + `"},"status":{"a":1},"data":null}`
	if got := string(r.fold([]byte(large))); got != `{"apiVersion":"v1","kind":"X","metadata":{"name":"x"},"status":{"a":1}}` {
		t.Errorf("it becomes %.200s", got)
	}
	sent, err := r.unfold([]byte(`{"apiVersion":"v1","kind":"X","metadata":{"name":"x"},"status":{"a":2}}`))
	var content map[string]any
	if err != nil || json.Unmarshal(sent, &content) != nil || len(content) != 6 || content["spec"].(map[string]any)["of"] != long {
		t.Errorf("it is sent as %.200s: %v", sent, err)
	}
	if again, err := (*remainder)(nil).unfold(sent); err != nil || !bytes.Equal(again, sent) {
		t.Errorf("without a remainder: %v", err)
	}
}

// K8S-26: of the objects of an answer to a deletion that are large it is kept which they are.
func TestHeadsOf(t *testing.T) {
	long := strings.Repeat("x", largeBody)
	object := func(name string) string {
		return `{"apiVersion":"v1","kind":"X","metadata":{"name":"` + name + `","finalizers":["a/b", "c/d"],"labels":{"a":"b"}},"spec":{"of":["` + long + `",{},[]]},"status":{}}`
	}
	head := func(name string) string {
		return `{"apiVersion":"v1","kind":"X","metadata":{"finalizers":["a/b"],"name":"` + name + `"}}`
	}
	for body, want := range map[string]string{
		object("x"): head("x"),
		`{"apiVersion":"v1","kind":"XList","metadata":{"resourceVersion":"7"},"items":[` + object("a") + " , " + object("b") + `]}`: `{"apiVersion":"v1","items":[` + head("a") + "," + head("b") + `],"kind":"XList","metadata":{"resourceVersion":"7"}}`,
		`{"kind":"Status","details":{"name":"x"},"message":"` + long + `"}`:                                                         "",
		`{"kind":"X","metadata":{},"spec":{}}`:                                                                                      "",
		`["` + long + `"]`:                                                                                                          "",
		`{"spec":"` + long:                                                                                                          "",
		`<html>` + long:                                                                                                             "",
	} {
		if want == "" {
			want = body
		}
		if got := string(headsOf([]byte(body))); got != want {
			t.Errorf("%.60q becomes %.300q", body, got)
		}
	}
}

// K8S-26: an object that is deleted and held by a finalizer is not decoded, and its deletion waits for no other work.
func TestDeletionOfLargeObjects(t *testing.T) {
	d := newDesk(t)
	api := admin(t, d.cluster).CoreV1().ConfigMaps(d.namespace)
	data, finalizers := map[string]string{}, make([]string, 60_000)
	for i := range 30_000 {
		data[fmt.Sprint("key-", i)] = "x"
	}
	for i := range finalizers {
		finalizers[i] = "a/b"
	}
	made, err := api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Finalizers: finalizers}, Data: data}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	busy, release := WithTurn(t.Context())
	defer release()
	if err := awaitTurn(busy, bytes.Repeat([]byte("{},"), 20_000)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(why(t), 20*time.Second)
	defer cancel()
	held := false
	ctx = ObserveWrites(ctx, func(_ Ref, revision uint64) { held = revision > 0 })
	if err := d.Delete(ctx, d.ref("x"), Preconditions{UID: made.UID}); err != nil || !held {
		t.Errorf("it is held %t, %v", held, err)
	}
}
