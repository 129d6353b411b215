// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

func at(ms int) time.Time { return time.UnixMilli(int64(1_000_000 + ms)) }

func TestWindows(t *testing.T) {
	for want, times := range map[int][]time.Time{
		0: {},
		1: {at(0), at(500), at(100)},
		2: {at(501), at(0)},
		3: {at(0), at(400), at(700), at(1200), at(1201)},
	} {
		if got := windows(times, 500*time.Millisecond); got != want {
			t.Errorf("%v are in %d windows, want %d", times, got, want)
		}
	}
}

func TestPercentile(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	for _, c := range []struct {
		all        []float64
		part, want float64
	}{{hundred, .5, 50}, {hundred, .99, 99}, {hundred, 1, 100}, {[]float64{7}, .5, 7}, {[]float64{7}, .99, 7}, {[]float64{2, 1}, .99, 2}} {
		if got := percentile(c.all, c.part); got != c.want {
			t.Errorf("percentile %v of %d figures is %v, want %v", c.part, len(c.all), got, c.want)
		}
	}
}

func slice(name, namespace string, endpoints ...string) *unstructured.Unstructured {
	list := []any{}
	for _, e := range endpoints {
		list = append(list, map[string]any{"name": e})
	}
	u := &unstructured.Unstructured{Object: map[string]any{"namespace": namespace, "endpoints": list}}
	u.SetName(name)
	return u
}

func newEndpointSlices() *endpointSlices {
	return &endpointSlices{
		appeared: newSightings[string](), vanished: newSightings[string](),
		of: map[string]map[string]bool{}, in: map[string]int{},
	}
}

// An endpoint that moves is in a slice all the time.
func TestEndpointsInSlices(t *testing.T) {
	all := newEndpointSlices()
	all.handleEvent(watch.Added, slice("one", "shop", "a", "b"))
	all.handleEvent(watch.Added, slice("two", "shop", "b", "c"))
	all.handleEvent(watch.Modified, slice("one", "shop", "a"))
	if got := slices.Sorted(maps.Keys(all.appeared.at)); !slices.Equal(got, []string{"shop/a", "shop/b", "shop/c"}) {
		t.Errorf("%v have appeared", got)
	}
	if len(all.vanished.at) > 0 {
		t.Errorf("%v have vanished", all.vanished.at)
	}
	if fill, n := all.fill(); fill != 1.5 || n != 2 {
		t.Errorf("%d slices have %v endpoints each", n, fill)
	}
	all.handleEvent(watch.Deleted, slice("two", "shop", "b", "c"))
	if got := slices.Sorted(maps.Keys(all.vanished.at)); !slices.Equal(got, []string{"shop/b", "shop/c"}) {
		t.Errorf("%v have vanished", got)
	}
}

func TestLeastWrites(t *testing.T) {
	all := newEndpointSlices()
	all.handleEvent(watch.Added, slice("one", "shop", "a", "b", "c"))
	all.handleEvent(watch.Added, slice("two", "shop", "d", "unasked"))
	causes := map[string]time.Time{"shop/a": at(0), "shop/b": at(400), "shop/c": at(600), "shop/d": at(0)}
	if got := all.least(causes, 500*time.Millisecond); got != 3 {
		t.Errorf("at least %d writes, want two of one slice and one of the other", got)
	}
	all.begin()
	if got := all.least(causes, 500*time.Millisecond); got != 0 {
		t.Errorf("at least %d writes where nothing has happened", got)
	}
	all.handleEvent(watch.Modified, slice("one", "shop", "a", "c"))
	if _, ok := all.vanished.at["shop/b"]; !ok {
		t.Error("what there was is forgotten, too")
	}
}

func identity(number string, labels map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"security-labels": labels}}
	u.SetName(number)
	return u
}

func TestDuplicates(t *testing.T) {
	all := &identities{made: newSightings[string](), sets: map[string]string{}, copies: map[string][]string{}}
	web := map[string]any{"k8s:app": "web"}
	all.handleEvent(watch.Added, identity("300", web))
	all.handleEvent(watch.Modified, identity("300", web))
	if n := all.duplicates([]string{"k8s:app=web;"}); n != 0 {
		t.Errorf("%d duplicates of one", n)
	}
	all.handleEvent(watch.Added, identity("301", web))
	all.handleEvent(watch.Added, identity("302", map[string]any{"k8s:app": "api"}))
	if n := all.duplicates([]string{"k8s:app=web;", "k8s:app=api;", "k8s:app=none;"}); n != 1 {
		t.Errorf("%d duplicates, want 1", n)
	}
	all.handleEvent(watch.Deleted, identity("300", web))
	if n, number := all.duplicates([]string{"k8s:app=web;"}), all.number("k8s:app=web;"); n != 0 || number != "301" {
		t.Errorf("%d duplicates, number %s", n, number)
	}
}

// The labels are those of an example in docs/wire.
func TestLabelSetOfAPod(t *testing.T) {
	got := labelSet(securityLabels("shop",
		map[string]string{"kubernetes.io/metadata.name": "shop"}, map[string]string{"app": "web", "pod-template-hash": "abc"}, benchContainers))
	want := "gen:io.cilium.k8s.named-ports=http.TCP.8080;" +
		"k8s:app=web;" +
		"k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=shop;" +
		"k8s:io.cilium.k8s.policy.cluster=default;" +
		"k8s:io.cilium.k8s.policy.serviceaccount=default;" +
		"k8s:io.kubernetes.pod.namespace=shop;"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestWaitingForSightings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSightings[string]()
		go func() {
			s.record(at(1), "b")
			time.Sleep(time.Second)
			s.record(at(2), "a", "b")
		}()
		found, err := s.wait(t.Context(), []string{"a", "b"})
		if err != nil || found["a"] != at(2) || found["b"] != at(1) {
			t.Errorf("%v, %v", found, err)
		}
		if last, err := s.count(t.Context(), 2); err != nil || last != at(2) {
			t.Errorf("the last of two was seen at %v, %v", last, err)
		}
		if _, err := s.wait(t.Context(), []string{"a", "c"}); err == nil {
			t.Error("what never comes is waited for, and there is no error")
		}
	})
}

func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var began10 time.Duration
		err := paced(t.Context(), 100, 1000, func(context.Context, int) error {
			mu.Lock()
			defer mu.Unlock()
			began10 = max(began10, time.Since(began))
			return nil
		})
		if err != nil || began10 != 9990*time.Millisecond {
			t.Errorf("1,000 at 100 a second: the last began after %v, %v", began10, err)
		}
		broken := errors.New("broken")
		if err := paced(t.Context(), 0, 1000, func(_ context.Context, i int) error {
			if i == 5 {
				return broken
			}
			return nil
		}); !errors.Is(err, broken) {
			t.Errorf("one failed, and the error is %v", err)
		}
	})
}

func TestEveryScenarioCanBeAskedFor(t *testing.T) {
	b := Bench{Size: "S", Rounds: 1}
	if err := b.Check(Scenarios()); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"size":     Bench{Size: "XL", Rounds: 1}.Check(nil),
		"rounds":   Bench{Size: "S"}.Check(nil),
		"scenario": b.Check([]string{"slice"}),
	} {
		if err == nil {
			t.Errorf("a wrong %s is accepted", name)
		}
	}
	for _, s := range b.scenarios() {
		known := map[string]bool{}
		for _, m := range s.contest.Measures {
			if known[m.Name] {
				t.Errorf("%s: %q twice", s.contest.Name, m.Name)
			}
			known[m.Name] = true
		}
		for name := range s.recorded {
			if !known[name] {
				t.Errorf("%s: %q is recorded of the original, and not measured", s.contest.Name, name)
			}
		}
	}
}

func TestWhatIsMissingIsNoticed(t *testing.T) {
	r := contest.Result{
		Contest: contest.Contest{Measures: []contest.Measure{{Name: "time"}, {Name: "bytes"}}},
		Runs:    map[string][]contest.Figures{ours: {{"time": 1}}},
	}
	if complete(r) == nil {
		t.Error("bytes were not measured, and nobody says so")
	}
	r.Runs[ours] = append(r.Runs[ours], contest.Figures{"bytes": 0})
	if err := complete(r); err != nil {
		t.Error(err)
	}
}
