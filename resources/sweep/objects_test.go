// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

type widget struct {
	widgetMeta     `json:"metadata"`
	slim.Undecoded `json:"-"`
}

type widgetMeta struct {
	slim.Meta
	Labels            slim.Labels `json:"labels"`
	DeletionTimestamp slim.Time   `json:"deletionTimestamp"`
}

var widgets = stream.Custom[widget](schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).OfKind("Widget")

// byLabel holds all widgets to be garbage that are labelled so.
type byLabel struct{ ended int }

func (*byLabel) Policy() Policy {
	return Policy{Interval: time.Minute, Fields: []string{"metadata.labels"}, Propagation: metav1.DeletePropagationBackground}
}
func (*byLabel) Garbage(w *widget) (string, bool) { return "its label", w.Labels.Get("keep") == "" }
func (c *byLabel) EndScan()                       { c.ended++ }

// deletes records deletes with their preconditions and causes.
type deletes struct {
	k8s.Client
	mu  sync.Mutex
	all []string
}

func (d *deletes) made() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

func (d *deletes) Delete(ctx context.Context, ref k8s.Ref, only k8s.Preconditions) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, strings.Join([]string{
		ref.String(), string(only.UID), only.ResourceVersion, string(only.Propagation), k8s.CauseOf(ctx).Triggers[0].String(),
	}, ", "))
	return nil
}

func testDeps() Deps {
	return Deps{Module: cell.ModuleInfo{ID: "test"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("test"), MaxShare: 1}
}

func decodedWidget(t *testing.T, text string) *widget {
	t.Helper()
	codec, err := slim.JSON[widget]()
	if err != nil {
		t.Fatal(err)
	}
	w := &widget{}
	if err := codec.DecodeJSON([]byte(text), w); err != nil {
		t.Fatal(err)
	}
	return w
}

// Garbage is deleted with UID, resourceVersion and the object as its cause; objects that are wanted, that are
// terminating, or whose fields cannot be decoded are not.
func TestObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, err := stream.NewLocal[widget]()
		if err != nil {
			t.Fatal(err)
		}
		all.Replace()
		for _, text := range []string{
			`{"metadata":{"name":"garbage","namespace":"x","uid":"A","resourceVersion":"7"}}`,
			`{"metadata":{"name":"wanted","uid":"B","labels":{"keep":"yes"}}}`,
			`{"metadata":{"name":"unreadable","uid":"C","labels":7}}`,
			`{"metadata":{"name":"terminating","uid":"D","deletionTimestamp":"2026-01-01T00:00:00Z"}}`,
		} {
			all.Upsert(decodedWidget(t, text))
		}
		client, collector := &deletes{}, &byLabel{}
		objects, err := NewObjects(testDeps(), client, widgets, all, collector)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = objects.Run(ctx) }()
		time.Sleep(90 * time.Second)
		cancel()
		synctest.Wait()
		want := []string{"widgets.example.com x/garbage, A, " + all1(all, "garbage") + ", Background, Widget x/garbage at " + all1(all, "garbage")}
		if !slices.Equal(client.all, want) {
			t.Errorf("deleted are %q, want %q", client.all, want)
		}
		if collector.ended != 2 {
			t.Errorf("%d scans ended", collector.ended)
		}
	})
}

// all1 is the resourceVersion that a local stream gave an object.
func all1(all *stream.Local[widget], name string) string {
	store, _ := all.Store(context.Background())
	w, _ := store.Get(slim.Key{Namespace: "x", Name: name})
	return w.ResourceVersion.String()
}

// Reset has a candidate start anew, in the sweep that runs, too.
func TestObjectsReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, err := stream.NewLocal[widget]()
		if err != nil {
			t.Fatal(err)
		}
		all.Replace()
		all.Upsert(decodedWidget(t, `{"metadata":{"name":"a","uid":"A"}}`))
		client := &deletes{}
		objects, err := NewObjects(testDeps(), client, widgets, all, &byLabel{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = objects.Run(ctx) }()
		for range 5 {
			time.Sleep(40*time.Second + time.Millisecond)
			objects.Reset(slim.Key{Name: "a"})
		}
		if made := client.made(); len(made) != 0 {
			t.Errorf("deleted are %q", made)
		}
		time.Sleep(2 * time.Minute)
		cancel()
		synctest.Wait()
		if len(client.made()) == 0 {
			t.Error("nothing is deleted")
		}
	})
}

type endless struct {
	slim.Meta `json:"metadata"`
}

type allEndless struct{}

func (allEndless) Policy() Policy                  { return Policy{} }
func (allEndless) Garbage(*endless) (string, bool) { return "", true }

// A type that does not keep the deletion timestamp cannot be swept.
func TestObjectsNeedDeletionTimestamp(t *testing.T) {
	_, err := NewObjects(testDeps(), nil, stream.Custom[endless](widgets.Resource()), nil, Collector[endless](allEndless{}))
	if err == nil || !strings.Contains(err.Error(), "endless keeps no deletion timestamp") {
		t.Error(err)
	}
}

// panicking is byLabel that panics for one widget.
type panicking struct{ byLabel }

func (c *panicking) Garbage(w *widget) (string, bool) {
	if w.Name == "bad" {
		panic("oops")
	}
	return c.byLabel.Garbage(w)
}

// K8S-19: an object for which the collector panics is spared, and named; the others are collected.
func TestAnObjectForWhichTheCollectorPanicsIsSpared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, err := stream.NewLocal[widget]()
		if err != nil {
			t.Fatal(err)
		}
		all.Replace()
		for _, name := range []string{"a", "bad", "b"} {
			all.Upsert(decodedWidget(t, `{"metadata":{"name":"`+name+`","namespace":"x","uid":"`+name+`"}}`))
		}
		client, deps, tree := &deletes{}, testDeps(), health.NewTree()
		deps.Health, deps.book = tree.Reporter("test"), explain.NewHistory()
		objects, err := NewObjects(deps, client, widgets, all, &panicking{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = objects.Run(ctx) }()
		time.Sleep(90 * time.Second)
		if got := client.made(); len(got) != 2 || strings.Contains(strings.Join(got, ""), "bad") {
			t.Errorf("deleted are %q", got)
		}
		if got := tree.Degraded(); len(got) != 1 || !strings.Contains(got[0].Error, "handling Widget x/bad panicked 2 times in a row at resources/sweep/objects_test.go:") {
			t.Errorf("degraded: %v", got)
		}
		if x := deps.book.For("Widget", "x", "bad"); len(x.Decisions) != 1 || !strings.Contains(x.Decisions[0].Outcome, "next try with the next sweep: oops") {
			t.Errorf("explain says %+v", x)
		}
		cancel()
		synctest.Wait()
	})
}
