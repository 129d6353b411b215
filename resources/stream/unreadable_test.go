// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// gadget is a widget of which single fields may be undecodable.
type gadget struct {
	slim.Meta      `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           gadgetSpec `json:"spec"`
}

type gadgetSpec struct {
	Text string   `json:"text"`
	List []string `json:"list"`
}

func putGadget(server *streamtest.Server, name string, spec any) {
	server.Put(streamtest.Widgets, map[string]any{
		"metadata": map[string]any{"namespace": "things", "name": name}, "spec": spec, "status": []int{1},
	})
}

func fields(text, list any) map[string]any { return map[string]any{"text": text, "list": list} }

// A field that cannot be decoded does not take the others along: the object is
// shown as it is now, at start and later, in a watch and in a list, and the field
// is named. A field that the type does not have does not matter.
func TestUndecodedFields(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprint("watchlist ", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { undecodedFields(t, watchList) })
		})
	}
}

func undecodedFields(t *testing.T, watchList bool) {
	server := streamtest.NewServer()
	if !watchList {
		server.WithoutWatchList()
	}
	server.Serve(streamtest.Widgets, "Widget", true)
	putGadget(server, "bad", fields("1", "not a list"))
	putGadget(server, "good", fields("1", []string{"a"}))
	health, log := &streamtest.Health{}, &logtest.Buffer{}
	s, err := stream.New(stream.NewSource(server.Connect()), stream.Custom[gadget](streamtest.Widgets),
		stream.WithHealth(health), stream.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	store, err := s.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	events := streamtest.Each(t.Context(), s)
	next := func() streamtest.Event[gadget] {
		select {
		case e := <-events:
			return e
		case <-time.After(time.Hour):
			t.Fatal("no event")
			panic("unreachable")
		}
	}
	shows := func(name, text string, undecoded ...string) {
		t.Helper()
		synctest.Wait()
		obj, _ := store.Get(key(name))
		if obj == nil || obj.Spec.Text != text || obj.CannotDecode("spec.list", "spec.text") != (len(undecoded) > 0) {
			t.Errorf("%s is %+v", name, obj)
		}
		for _, field := range undecoded {
			if !slices.Contains(store.Unreadable(field), key(name)) || !strings.Contains(health.Err().Error(), field) {
				t.Errorf("%s of %s is not named: %v, %v", field, name, store.Unreadable(field), health.Err())
			}
		}
	}
	for range 3 { // two objects and Sync
		next()
	}
	shows("bad", "1", "spec.list")
	shows("good", "1")
	if keys := store.Unreadable(); len(keys) != 0 {
		t.Errorf("nothing can be decoded of %v", keys)
	}

	putGadget(server, "good", fields(7, []string{"b"}))
	if e := next(); e.Key != key("good") || e.Kind != stream.Upsert || !e.Object.CannotDecode("spec.text") || e.Object.Spec.List[0] != "b" {
		t.Errorf("%v of %v: %+v", e.Kind, e.Key, e.Object)
	}
	shows("good", "", "spec.text")

	// What is listed anew and has not changed is as undecodable as it was.
	server.Compact()
	server.Cut()
	time.Sleep(time.Minute)
	shows("bad", "1", "spec.list")
	shows("good", "", "spec.text")
	if keys := store.Unreadable(""); len(keys) != 2 {
		t.Errorf("unreadable are %v", keys)
	}

	putGadget(server, "good", fields("2", []string{"b"}))
	if e := next(); e.Object.DecodeError() != nil {
		t.Error(e.Object.DecodeError())
	}
	server.Delete(streamtest.Widgets, key("bad"))
	if e := next(); e.Kind != stream.Delete || e.Key != key("bad") {
		t.Errorf("%v of %v", e.Kind, e.Key)
	}
	synctest.Wait()
	if keys := store.Unreadable(""); len(keys) != 0 || health.Err() != nil {
		t.Errorf("unreadable are %v, %v", keys, health.Err())
	}
	if lines := log.Count("unreadable"); lines > 2 {
		t.Errorf("%d lines about unreadable objects:\n%s", lines, log.String())
	}
}

// An object without a name may be any of them. One that was spoilt on its way is
// there again with a new list; one that is so on the server costs few lists.
func TestNamelessObjectIsListedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := streamtest.NewServer()
		server.Serve(streamtest.Widgets, "Widget", true)
		putGadget(server, "a", fields("1", nil))
		s, err := stream.New(stream.NewSource(server.Connect()), stream.Custom[gadget](streamtest.Widgets))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		store, err := s.Store(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server.PutRaw(streamtest.Widgets, key("b"), []byte(`null`)) // as it is on its way
		synctest.Wait()
		if len(store.Unreadable()) != 1 {
			t.Fatalf("unreadable are %v", store.Unreadable())
		}
		putGadget(server, "b", fields("1", nil))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, ok := store.Get(key("b")); !ok || len(store.Unreadable()) != 0 {
			t.Errorf("after a new list: %t, unreadable are %v", ok, store.Unreadable())
		}
		before := requestsOf(server, streamtest.Widgets)
		server.PutRaw(streamtest.Widgets, key("b"), []byte(`null`))
		time.Sleep(10 * time.Minute)
		if n := requestsOf(server, streamtest.Widgets) - before; n < 10 || n > 40 {
			t.Errorf("%d requests in ten minutes", n)
		}
		if _, ok := store.Get(key("b")); !ok {
			t.Error("an object is gone that may be the one without a name")
		}
	})
}
