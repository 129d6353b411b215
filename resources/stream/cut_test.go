// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
)

// crate is a widget that may be large.
type crate struct {
	slim.Meta `json:"metadata"`
	slim.Cut  `json:"-"`
	Spec      gadgetSpec `json:"spec"`
}

// CutDown implements slim.Cutter.
func (c *crate) CutDown() { c.Spec = gadgetSpec{} }

const kib = 1 << 10

// Large objects of a namespace have a bound together: one that comes when there is no more is cut, and whole once others have gone. It is an
// Upsert though its resourceVersion is the same. Other namespaces have their own, and small objects do not count.
func TestLargeObjectsHaveABound(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprint("watchlist ", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { largeObjects(t, watchList) })
		})
	}
}

func largeObjects(t *testing.T, watchList bool) {
	server := streamtest.NewServer()
	if !watchList {
		server.WithoutWatchList()
	}
	server.Serve(streamtest.Widgets, "Widget", true)
	put := func(namespace, name string, size int) {
		server.Put(streamtest.Widgets, map[string]any{
			"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": fields(strings.Repeat("x", size), []string{}), "status": []int{1},
		})
	}
	put("things", "a", 100*kib)
	put("things", "b", 100*kib)
	put("things", "c", 90*kib)
	put("things", "small", 10*kib)
	put("others", "d", 100*kib)
	// 250 KiB for a namespace
	s, err := stream.New(stream.WithMemory(stream.NewSource(server.Connect()), 14*250*kib), stream.Custom[crate](streamtest.Widgets))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	store, err := s.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	events := streamtest.Each(t.Context(), s)
	drain := func() (keys []string) {
		for {
			synctest.Wait()
			select {
			case e := <-events:
				keys = append(keys, e.Key.Name)
			default:
				return keys
			}
		}
	}
	shows := func(when string, whole string, cut string) {
		t.Helper()
		synctest.Wait()
		var gotWhole, gotCut []string
		for _, name := range []string{"a", "b", "c", "d", "small"} {
			namespace := "things"
			if name == "d" {
				namespace = "others"
			}
			switch obj, exists := store.Get(slim.Key{Namespace: namespace, Name: name}); {
			case !exists:
			case obj.IsCut():
				gotCut = append(gotCut, name)
				if obj.CutError() == nil || obj.Spec.Text != "" || obj.ResourceVersion == 0 {
					t.Errorf("%s: %s is %v, %v", when, name, obj.CutError(), obj.Meta)
				}
			default:
				gotWhole = append(gotWhole, name)
				if obj.CutError() != nil || obj.Spec.Text == "" {
					t.Errorf("%s: %s is %v", when, name, obj.CutError())
				}
			}
		}
		if got := strings.Join(gotWhole, " "); got != whole || strings.Join(gotCut, " ") != cut {
			t.Errorf("%s: whole are %q, and cut %q", when, got, gotCut)
		}
	}
	drain()
	shows("at the start", "a b d small", "c")
	lists := len(server.Requests())
	time.Sleep(10 * time.Minute)
	if n := len(server.Requests()) - lists; n > 10 {
		t.Errorf("%d requests while there is no memory", n)
	}
	put("things", "c", 95*kib)
	drain()
	shows("it changes", "a b d small", "c")
	put("things", "a", 160*kib)
	drain()
	shows("what grows is cut, and what does not stays", "b d small", "a c")
	time.Sleep(time.Minute)
	shows("there is memory for the other one", "b c d small", "a")
	drain()
	put("things", "b", 10*kib)
	server.Cut() // in the middle
	time.Sleep(time.Minute)
	shows("one gets smaller, so that there is no memory for the largest", "b c d small", "a")
	drain()
	server.Delete(streamtest.Widgets, slim.Key{Namespace: "things", Name: "c"})
	time.Sleep(time.Minute)
	shows("one goes", "a b d small", "")
	if keys := drain(); fmt.Sprint(keys) != "[c a]" {
		t.Errorf("events are of %v", keys)
	}
	server.Compact()
	server.Cut()
	put("things", "c", 90*kib)
	server.Delete(streamtest.Widgets, slim.Key{Namespace: "things", Name: "a"})
	time.Sleep(time.Minute)
	shows("a new list, in which one is gone", "b c d small", "")
}

// What a bound has counted is what there is: the same objects come and go in any order, and in the end all that is there is whole.
func TestBoundOfLargeObjectsIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := streamtest.NewServer()
		server.Serve(streamtest.Widgets, "Widget", true)
		s, err := stream.New(stream.WithMemory(stream.NewSource(server.Connect()), 14*250*kib), stream.Custom[crate](streamtest.Widgets), stream.WithLinger(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		put := func(name string, size int) {
			server.Put(streamtest.Widgets, map[string]any{"metadata": map[string]any{"namespace": "things", "name": name}, "spec": fields(strings.Repeat("x", size), []string{})})
		}
		for round := range 5 {
			ctx, stop := context.WithCancel(t.Context())
			store, err := s.Store(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 40 {
				put(fmt.Sprint("crate-", i*7%20), (i*13%23)*10*kib)
				if i%3 == 0 {
					server.Delete(streamtest.Widgets, slim.Key{Namespace: "things", Name: fmt.Sprint("crate-", i*11%20)})
				}
				if i == round*8 {
					server.Cut()
				}
				time.Sleep(time.Second)
			}
			for i := range 20 {
				put(fmt.Sprint("crate-", i), kib)
			}
			put("large", 230*kib)
			time.Sleep(time.Minute)
			synctest.Wait()
			if large, exists := store.Get(slim.Key{Namespace: "things", Name: "large"}); !exists || large.IsCut() {
				t.Errorf("round %d: there is memory for one: %v", round, large.CutError())
			}
			server.Delete(streamtest.Widgets, slim.Key{Namespace: "things", Name: "large"})
			synctest.Wait()
			stop()
			synctest.Wait()
		}
	})
}
