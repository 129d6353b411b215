// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// published waits until the API server publishes a definition that lacks these fields of an object, and no others. The client
// reads definitions each time.
func (d *desk) published(t *testing.T, kind schema.GroupVersionKind, object map[string]any, lacks ...string) {
	t.Helper()
	unserved := d.transport.unserved
	unserved.every = 0
	until(t, "the definition of "+kind.Kind+" is published", func() bool {
		unserved.refresh(t.Context(), kind)
		s := unserved.definition(kind).shape
		return s != nil && slices.Equal(s.lackedOf(object), lacks)
	})
}

// aWidget has fields that its definition lacks.
var aWidget = map[string]any{"spec": map[string]any{"size": int64(1), "parts": []any{map[string]any{"name": "a", "unknown": "of a part"}}, "unknown": "x"}}

// widgets are a kind that is served and published, and an object of it.
func (d *desk) widgets(t *testing.T) (kind schema.GroupVersionKind, ref Ref) {
	t.Helper()
	resource := d.define(t)
	kind, ref = resource.GroupVersion().WithKind("Widget"), Ref{Resource: resource, Name: "w"}
	d.published(t, kind, aWidget, "spec.parts[].unknown", "spec.unknown")
	until(t, "the kind is served", func() bool {
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(aWidget)}
		u.SetGroupVersionKind(kind)
		u.SetName("w")
		_, err := d.Create(why(t), resource, u)
		return err == nil
	})
	return kind, ref
}

// set sets a field of the spec.
func (d *desk) set(t *testing.T, ref Ref, field string, value any) (stored *unstructured.Unstructured, written bool, err error) {
	t.Helper()
	return d.Modify(why(t), ref, func(u *unstructured.Unstructured) error {
		return unstructured.SetNestedField(u.Object, value, "spec", field)
	})
}

// countReads forgets what is known of definitions, and counts the requests for them from now on.
func (d *desk) countReads() *int {
	count := new(int)
	fresh := newUnserved(d.transport)
	fresh.every = time.Hour
	get := fresh.get
	fresh.get = func(ctx context.Context, path string, most int64) ([]byte, int, error) {
		*count++
		return get(ctx, path, most)
	}
	d.transport.unserved = fresh
	return count
}

// K8S-17, with one definition, as it takes seconds until it is published.
func TestFieldsThatTheDefinitionLacks(t *testing.T) {
	d := newDesk(t)
	kind, ref := d.widgets(t)
	for _, test := range []struct {
		name string
		run  func(*desk, *testing.T, schema.GroupVersionKind, Ref)
	}{
		{"may be withdrawn", (*desk).testMayBeWithdrawn},
		{"a webhook drops", (*desk).testWebhook},
		{"cannot be looked up", (*desk).testCannotBeLookedUp},
		{"are left out", (*desk).testLeftOut},
		{"are there by now", (*desk).testShown},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(d, t, kind, ref) })
	}
}

// Fields that the definition lacks are no loss, and are not written again and again; once it has them, they are.
func (d *desk) testLeftOut(t *testing.T, kind schema.GroupVersionKind, ref Ref) {
	var stored *unstructured.Unstructured
	edit := func(u *unstructured.Unstructured) error {
		spec := u.Object["spec"].(map[string]any)
		spec["later"] = "x"
		spec["parts"].([]any)[0].(map[string]any)["later"] = "y"
		return unstructured.SetNestedField(spec, int64(2), "size")
	}
	reads := d.countReads()
	d.verbs(t)
	for k, want := range []bool{true, false, false} {
		var written bool
		var err error
		if stored, written, err = d.Modify(why(t), ref, edit); err != nil || written != want {
			t.Fatalf("%d: written %v, %v", k, written, err)
		}
	}
	d.expectWrites(t, "update")
	if *reads != 2 { // the list of documents, and the document
		t.Errorf("%d requests for the definition", *reads)
	}
	whole := stored.DeepCopy()
	if err := edit(whole); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Update(why(t), ref.Resource, whole); err != nil {
		t.Errorf("as a whole: %v", err)
	}

	d.redefine(t, ref.Resource, func(spec map[string]any) { spec["later"] = map[string]any{"type": "string"} })
	d.published(t, kind, map[string]any{"spec": map[string]any{"later": "x"}})
	stored, written, err := d.Modify(why(t), ref, edit)
	if err != nil || !written {
		t.Fatalf("the definition has the field: written %v, %v", written, err)
	}
	if later, _, _ := unstructured.NestedString(stored.Object, "spec", "later"); later != "x" {
		t.Errorf("the definition has the field: %v", stored)
	}
}

// A definition that was seen before it got a field does not take the field away.
func (d *desk) testShown(t *testing.T, kind schema.GroupVersionKind, ref Ref) {
	d.published(t, kind, aWidget, "spec.parts[].unknown", "spec.unknown")
	d.transport.unserved.every = time.Hour
	d.redefine(t, ref.Resource, func(spec map[string]any) { spec["unknown"] = map[string]any{"type": "string"} })
	until(t, "the field is served", func() bool {
		patch := admin(t, d.cluster).RESTClient().Patch(types.MergePatchType).AbsPath(pathOf(ref)...)
		text, err := patch.Body([]byte(`{"spec":{"unknown":"of another writer"}}`)).DoRaw(t.Context())
		return err == nil && strings.Contains(string(text), `"unknown":"of another writer"`)
	})
	stored, written, err := d.set(t, ref, "size", int64(7))
	if err != nil || !written {
		t.Fatalf("written %v, %v", written, err)
	}
	if unknown, _, _ := unstructured.NestedString(stored.Object, "spec", "unknown"); unknown == "" {
		t.Errorf("%v", stored)
	}
	if lacks := d.transport.unserved.definition(kind).shape.lackedOf(stored.Object); len(lacks) == 0 {
		t.Error("the definition was seen again")
	}
}

// A field that may be withdrawn is not written before the definition is looked up, and others are.
func (d *desk) testMayBeWithdrawn(t *testing.T, kind schema.GroupVersionKind, ref Ref) {
	withdrawn[kind.GroupKind()] = []fieldPath{{"spec", "parts", "later"}}
	t.Cleanup(func() { delete(withdrawn, kind.GroupKind()) })
	reads := d.countReads()
	if _, written, err := d.set(t, ref, "size", int64(3)); err != nil || !written || *reads != 0 {
		t.Errorf("another field: written %v after %d requests for the definition, %v", written, *reads, err)
	}
	for range 3 {
		_, written, err := d.set(t, ref, "parts", []any{map[string]any{"name": "a", "kind": "x", "later": "y"}})
		if err != nil || written || *reads != 2 {
			t.Errorf("written %v after %d requests for the definition, %v", written, *reads, err)
		}
	}
}

// expectWrites are the writes since the requests were looked at last.
func (d *desk) expectWrites(t *testing.T, want ...string) {
	t.Helper()
	if writes := slices.DeleteFunc(d.verbs(t), func(verb string) bool { return verb == "get" }); !slices.Equal(writes, want) {
		t.Errorf("writes: %q, want %q", writes, want)
	}
}

// redefine changes the fields of the spec in a definition.
func (d *desk) redefine(t *testing.T, r schema.GroupVersionResource, change func(spec map[string]any)) {
	t.Helper()
	_, _, err := d.Modify(why(t), Ref{Resource: definitionResource, Name: r.GroupResource().String()}, func(u *unstructured.Unstructured) error {
		versions := u.Object["spec"].(map[string]any)["versions"].([]any)
		path := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}
		fields, _, err := unstructured.NestedFieldNoCopy(versions[0].(map[string]any), path...)
		change(fields.(map[string]any))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// webhook takes a text out of the objects that are sent.
type webhook struct {
	next http.RoundTripper
	text string
}

func (w webhook) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		return w.next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	changed := strings.Replace(string(body), w.text, "", 1)
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(changed)), int64(len(changed))
	return w.next.RoundTrip(req)
}

// K8S-8: a field that the definition has, and that something else drops, is a loss, also beside one that it lacks.
func (d *desk) testWebhook(t *testing.T, _ schema.GroupVersionKind, ref Ref) {
	d.countReads()
	term := d.transport.term.Load()
	next := term.next
	defer func() { term.next = next }()
	term.next = webhook{next, `"color":"blue",`}
	_, _, err := d.Modify(why(t), ref, func(u *unstructured.Unstructured) error {
		spec := u.Object["spec"].(map[string]any)
		spec["unknown"], spec["color"] = "x", "blue"
		return nil
	})
	var lost *NotStoredError
	if !errors.As(err, &lost) || lost.Field != "spec.color" {
		t.Errorf("%v", err)
	}
}

// K8S-8: where the definition cannot be looked up, a loss is a loss. That is logged once.
func (d *desk) testCannotBeLookedUp(t *testing.T, _ schema.GroupVersionKind, ref Ref) {
	var log strings.Builder
	unknown := newUnserved(d.transport)
	unknown.log, unknown.every = slog.New(slog.NewTextHandler(&log, nil)), 0
	d.transport.unserved = unknown
	listing := fmt.Sprintf(`{"paths":{"apis/%s":{"serverRelativeURL":"/openapi?hash=1"}}}`, ref.Resource.GroupVersion())
	for _, answer := range []struct {
		name     string
		index    string
		document string // not found without
		status   int
		err      error
	}{
		{name: "forbidden", status: http.StatusForbidden},
		{name: "no answer", err: io.EOF},
		{name: "a page", index: "<html>", status: http.StatusOK},
		{name: "no document", index: listing, status: http.StatusOK},
		{name: "another document", index: listing, document: "[]", status: http.StatusOK},
		{name: "not listed", index: `{"paths":{}}`, status: http.StatusOK},
	} {
		unknown.get = func(_ context.Context, path string, _ int64) ([]byte, int, error) {
			switch {
			case path == "/openapi/v3":
				return []byte(answer.index), answer.status, answer.err
			case answer.document == "":
				return nil, http.StatusNotFound, nil
			}
			return []byte(answer.document), http.StatusOK, nil
		}
		var lost *NotStoredError
		if _, _, err := d.set(t, ref, "unknown", answer.name); !errors.As(err, &lost) || lost.Field != "spec.unknown" {
			t.Errorf("%s: %v", answer.name, err)
		}
	}
	if text := log.String(); strings.Count(text, "cannot be looked up") != 1 {
		t.Error(text)
	}
}
