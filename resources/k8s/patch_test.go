// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// dataValue is a value of a ConfigMap that a patch sets.
func dataValue(key string, from, to any) PatchedValue {
	return PatchedValue{Field: "data." + key, From: from, To: to, In: func(u *unstructured.Unstructured) any {
		data, _, _ := unstructured.NestedMap(u.Object, "data")
		return data[key]
	}}
}

// patch sets a value as a duty does that has read it in a cache.
func (c *contest) patch(t *testing.T, name, key, value string) error {
	t.Helper()
	set := dataValue(key, nil, value)
	set.From = set.In(&unstructured.Unstructured{Object: c.objects[name]})
	body, err := json.Marshal([]map[string]any{{"op": "add", "path": "/data/" + key, "value": value}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Patch(why(t), Ref{Resource: configMaps, Namespace: "n", Name: name}, body, set)
	return err
}

// K8S-13 on a real API server: a JSON patch changes what its test allows, and a strategic merge patch one element of a
// list. Neither reads the object, and a response that does not show the values is an error.
func TestPatchChangesWhatWasRead(t *testing.T) {
	d := newDesk(t)
	if _, err := d.Create(why(t), configMaps, newConfigMap(d.namespace, "a", map[string]string{"x": "1", "other": "stays"})); err != nil {
		t.Fatal(err)
	}
	ref := Ref{Resource: configMaps, Namespace: d.namespace, Name: "a"}
	patch := []byte(`[{"op":"test","path":"/data/x","value":"1"},{"op":"replace","path":"/data/x","value":"2"}]`)
	d.verbs(t)
	var revision uint64
	stored, err := d.Patch(ObserveWrites(why(t), func(_ Ref, at uint64) { revision = at }), ref, patch, dataValue("x", "1", "2"))
	if err != nil || revision == 0 {
		t.Fatalf("at %d: %v", revision, err)
	}
	d.expect(t, "a patch", "patch")
	if data, _, _ := unstructured.NestedStringMap(stored.Object, "data"); data["x"] != "2" || data["other"] != "stays" {
		t.Errorf("stored is %v", data)
	}
	if _, err := d.Patch(why(t), ref, patch, dataValue("x", "1", "2")); !apierrors.IsInvalid(err) {
		t.Errorf("a test that fails: %v", err)
	}
	var dropped *NotStoredError
	patch = []byte(`[{"op":"replace","path":"/data/x","value":"3"}]`)
	stored, err = d.Patch(why(t), ref, patch, dataValue("x", "2", "4"))
	if !errors.As(err, &dropped) || dropped.Field != "data.x" {
		t.Errorf("another value is stored: %v", err)
	}
	if x, _, _ := unstructured.NestedString(stored.Object, "data", "x"); x != "3" {
		t.Errorf("returned beside the error is %v", stored)
	}
	ref.Name = "none"
	if _, err := d.Patch(why(t), ref, patch); !IsNotFound(err, ref) {
		t.Errorf("an object that does not exist: %v", err)
	}
	ref.UID = "u"
	if _, err := d.Patch(why(t), ref, patch); err == nil || !strings.Contains(err.Error(), "/metadata/uid") {
		t.Errorf("a uid in the reference: %v", err)
	}
}

// K8S-26: what a patch or a read returns is decoded when no other work has an object that needs much memory.
func TestPatchesAndReadsHaveTurns(t *testing.T) {
	c := newContest(t)
	data := map[string]string{"x": "1"}
	for i := range 30_000 {
		data[fmt.Sprint("key-", i)] = ""
	}
	for name, data := range map[string]map[string]string{"large": data, "small": {"x": "1"}} {
		if _, err := c.Create(why(t), configMaps, newConfigMap("n", name, data)); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(ctx context.Context, name string) error {
		_, err := c.Patch(ctx, Ref{Resource: configMaps, Namespace: "n", Name: name}, []byte(`[{"op":"add","path":"/data/x","value":"1"}]`))
		return err
	}
	other, release := WithTurn(t.Context())
	if err := awaitTurn(other, bytes.Repeat([]byte("{},"), 20_000)); err != nil {
		t.Fatal(err)
	}
	read := func(ctx context.Context, name string) error {
		_, err := c.Get(ctx, Ref{Resource: configMaps, Namespace: "n", Name: name})
		return err
	}
	for what, send := range map[string]func(ctx context.Context, name string) error{"patch": patch, "read": read} {
		if err := send(why(t), "small"); err != nil {
			t.Errorf("a %s of a small one: %v", what, err)
		}
		short, cancel := context.WithTimeout(why(t), 2*time.Second)
		if err := send(short, "large"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a %s beside another large one: %v", what, err)
		}
		cancel()
	}
	release()
	for what, send := range map[string]func(ctx context.Context, name string) error{"patch": patch, "read": read} {
		if err := send(why(t), "large"); err != nil {
			t.Errorf("a %s: %v", what, err)
		}
	}
}

// K8S-13.
func TestStrategicPatchMergesLists(t *testing.T) {
	d := newDesk(t)
	services := corev1.SchemeGroupVersion.WithResource("services")
	_, err := Create(why(t), d, services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	status := Ref{Resource: services, Namespace: d.namespace, Name: "s", Subresource: "status"}
	reasons := func(u *unstructured.Unstructured) any {
		all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		var texts []string
		for _, c := range all {
			texts = append(texts, c.(map[string]any)["type"].(string)+"="+c.(map[string]any)["reason"].(string))
		}
		return strings.Join(texts, " ")
	}
	set := func(kind, reason, want string) {
		t.Helper()
		body := `{"status":{"conditions":[{"type":"` + kind + `","status":"True","reason":"` + reason + `","message":"","lastTransitionTime":"2024-08-20T10:00:00Z"}]}}`
		if _, err := d.Patch(why(t), status, []byte(body), PatchedValue{Field: "status.conditions", To: want, In: reasons}); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
	}
	set("example.com/a", "One", "example.com/a=One")
	set("example.com/b", "Two", "example.com/b=Two example.com/a=One")
	set("example.com/a", "Three", "example.com/b=Two example.com/a=Three")
}
