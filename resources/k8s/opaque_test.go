// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// readable is a digest that can be read.
func readable(value []byte) (string, error) {
	var v any
	err := json.Unmarshal(value, &v)
	return fmt.Sprint("as ", v), err
}

// K8S-15: a field that is opaque is written and kept as a whole, and has its digest in place of the value.
func TestOpaqueField(t *testing.T) {
	d := newDesk(t)
	data := func() map[string]string {
		t.Helper()
		m, err := admin(t, d.cluster).CoreV1().ConfigMaps(d.namespace).Get(t.Context(), "x", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m.Data
	}
	type edit = func(*unstructured.Unstructured) error
	set := func(value string) func(*OpaqueField) edit {
		return func(f *OpaqueField) edit {
			return func(u *unstructured.Unstructured) error {
				digest, err := readable([]byte(value))
				f.Set(u, digest, json.RawMessage(value))
				return err
			}
		}
	}
	keep := func(*OpaqueField) edit {
		return func(u *unstructured.Unstructured) error {
			if _, folded := u.Object["data"].(string); !folded {
				t.Errorf("the value is decoded: %v", u.Object["data"])
			}
			return label(u)
		}
	}
	const first, second = `{"a":"<1>","b":"2"}`, `{"a":"3"}`
	f := NewOpaqueField("data", readable)
	created := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": d.namespace, "name": "x"},
	}}
	if err := set(first)(f)(created); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(f.With(why(t)), configMaps, created); err != nil || data()["a"] != "<1>" {
		t.Fatalf("%v, %v", data(), err)
	}
	for _, step := range []struct {
		edit    func(*OpaqueField) edit
		written bool
		want    string
	}{
		{set(`{"a":"\u003c1\u003e","b":"2"}`), false, "<1>"}, // as the API server writes it
		{keep, true, "<1>"},
		{set(second), true, "3"},
	} {
		f := NewOpaqueField("data", readable)
		if _, written, err := d.Modify(f.With(why(t)), d.ref("x"), step.edit(f)); err != nil || written != step.written || data()["a"] != step.want {
			t.Errorf("written %v, %v, %v", written, data(), err)
		}
	}
	if _, kept := data()["b"]; kept {
		t.Error("a part of the old value is left")
	}
}

// K8S-26: a value that needs much memory is not decoded for its digest before its turn.
func TestOpaqueFieldsHaveTurns(t *testing.T) {
	body := append(append([]byte(`{"spec":{"a":[`), bytes.Repeat([]byte(`{"a":0},`), 20_000)...), `{}]}}`...)
	decoded := 0
	fold := func(ctx context.Context) error {
		f := NewOpaqueField("spec", func([]byte) (string, error) { decoded++; return "d", nil })
		folded, err := f.fold(ctx, body)
		if err == nil && string(folded) != `{"spec":"d"}` {
			t.Errorf("it is folded to %.60s", folded)
		}
		return err
	}
	first, release := WithTurn(t.Context())
	if err := fold(first); err != nil || decoded != 1 {
		t.Fatalf("decoded %d times, %v", decoded, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	second, releaseSecond := WithTurn(short)
	if err := fold(second); err == nil || decoded != 1 {
		t.Errorf("two are decoded at once: %v", err)
	}
	releaseSecond()
	release()
	third, releaseThird := WithTurn(t.Context())
	defer releaseThird()
	if err := fold(third); err != nil || decoded != 2 {
		t.Errorf("decoded %d times, %v", decoded, err)
	}
}

// K8S-15: where the role allows to list alone, and for bodies that are none of the kind.
func TestOpaqueFieldElsewhere(t *testing.T) {
	d := newDesk(t)
	d.create(t, "x")
	only := d.as(t, "lister", Allow("list,update", configMaps.GroupResource()))
	f := NewOpaqueField("data", readable)
	_, written, err := only.Modify(f.With(why(t)), only.ref("x"), func(u *unstructured.Unstructured) error {
		if u.Object["data"] != `as map[a:1]` {
			t.Errorf("the value is decoded: %v", u.Object["data"])
		}
		digest, err := readable([]byte(`{"a":"2"}`))
		f.Set(u, digest, json.RawMessage(`{"a":"2"}`))
		return err
	})
	if err != nil || !written {
		t.Errorf("%v, %v", written, err)
	}
	for _, body := range []string{"", "null", "[]", "{}", "<html>", `{"data":`, `{"spec":{}}`} {
		if got, err := f.fold(t.Context(), []byte(body)); err != nil || string(got) != body {
			t.Errorf("%q is folded to %q, %v", body, got, err)
		}
		if got, err := f.unfold([]byte(body)); err != nil || string(got) != body {
			t.Errorf("%q is unfolded to %q, %v", body, got, err)
		}
	}
	if got, err := f.unfold([]byte(`{"data":"of nothing"}`)); err == nil {
		t.Errorf("a digest is sent: %s", got)
	}
}
