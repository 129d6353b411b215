// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// Faults of the server and of the way to it, against the server in memory and in
// fake time. What a real server does is in real_test.go.

var configMaps = streamtest.ConfigMaps

func configMap(name, value string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{Data: map[string]string{"value": value}}
	cm.Namespace, cm.Name = "things", name
	return cm
}

func key(name string) slim.Key { return slim.Key{Namespace: "things", Name: name} }

// fixture is a stream of ConfigMaps from a server in memory.
type fixture struct {
	*stream.Stream[streamtest.Thing]
	t      *testing.T
	server *streamtest.Server
	health *streamtest.Health
	log    *logtest.Buffer
}

func newFixture(t *testing.T, server *streamtest.Server, opts ...stream.Option) *fixture {
	return newFixtureOf(t, server, stream.NewSource(server.Connect()), streamtest.CoreThings(), opts...)
}

func newFixtureOf(t *testing.T, server *streamtest.Server, source *stream.Source, kind stream.Kind[streamtest.Thing], opts ...stream.Option) *fixture {
	f := &fixture{t: t, server: server, health: &streamtest.Health{}, log: &logtest.Buffer{}}
	log := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	s, err := stream.New(source, kind, append([]stream.Option{stream.WithHealth(f.health), stream.WithLogger(log)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	f.Stream = s
	return f
}

func (f *fixture) store() *stream.Store[streamtest.Thing] {
	f.t.Helper()
	s, err := f.Store(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// shows waits, in fake time, until the store shows the value, "" for no object.
func (f *fixture) shows(s *stream.Store[streamtest.Thing], name, value string) {
	f.t.Helper()
	for deadline := time.Now().Add(time.Hour); ; time.Sleep(time.Millisecond) {
		obj, ok := s.Get(key(name))
		if ok == (value != "") && (!ok || obj.Value() == value) {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("the store does not show %s=%q; state %+v, health %q", name, value, f.State(), f.health.Log())
		}
	}
}

func coreServer() *streamtest.Server {
	server := streamtest.NewServer()
	server.Serve(configMaps, "ConfigMap", false)
	return server
}

func answer(code int, seconds int) *apierrors.StatusError {
	return apierrors.NewGenericServerResponse(code, "get", configMaps.GroupResource(), "", "a test says so", seconds, true)
}

func TestWatchCutAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coreServer()
		f := newFixture(t, server)
		store := f.store()
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(3 * time.Millisecond):
					server.Cut()
				}
			}
		}()
		for i := range 200 {
			server.Put(configMaps, configMap(fmt.Sprint("n-", i%7), fmt.Sprint(i)))
			time.Sleep(5 * time.Millisecond)
		}
		f.shows(store, "n-3", "199")
		close(stop)
		n := 0
		for _, r := range server.Requests() {
			if !r.Watch || r.Initial {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d requests for the whole state, want 1: a watch that is cut goes on", n)
		}
	})
}

func TestGone(t *testing.T) {
	for name, gone := range map[string]func(*streamtest.Server){
		"in the stream": func(s *streamtest.Server) { s.Compact() },
		"as the answer": func(s *streamtest.Server) {
			s.Fail(func(r streamtest.Request) *apierrors.StatusError {
				if r.Watch && !r.Initial {
					return apierrors.NewResourceExpired("too old")
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := coreServer()
				server.Put(configMaps, configMap("a", "1"))
				server.Put(configMaps, configMap("b", "1"))
				f := newFixture(t, server)
				store := f.store()
				events := f.Events(t.Context())
				for range 3 {
					<-events
				}
				thaw := server.Freeze()
				server.Delete(configMaps, key("a"))
				server.Put(configMaps, configMap("c", "1"))
				gone(server)
				server.Cut()
				thaw()
				f.shows(store, "a", "")
				f.shows(store, "c", "1")
				got := map[string]bool{}
				for range 2 {
					e := <-events
					got[e.Kind.String()+" "+e.Key.Name] = true
				}
				if !got["delete a"] || !got["upsert c"] {
					t.Errorf("got %v", got)
				}
				synctest.Wait()
				select {
				case e := <-events:
					t.Errorf("%v of %v, which did not change", e.Kind, e.Key)
				default:
				}
				server.Fail(nil)
			})
		})
	}
}

func TestErrorsAreRetried(t *testing.T) {
	for _, code := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusUnauthorized, http.StatusGatewayTimeout} {
		for _, watchList := range []bool{true, false} {
			t.Run(fmt.Sprint(code, " watchlist ", watchList), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := coreServer()
					if !watchList {
						server.WithoutWatchList()
					}
					server.Put(configMaps, configMap("a", "1"))
					failing := true
					server.Fail(func(streamtest.Request) *apierrors.StatusError {
						if failing {
							return answer(code, 0)
						}
						return nil
					})
					f := newFixture(t, server)
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
					defer cancel()
					if _, err := f.Store(ctx); err == nil || !strings.Contains(err.Error(), "cannot watch configmaps") || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("the error does not say what is wrong: %v", err)
					}
					if n := len(server.Requests()); n < 10 || n > 60 {
						t.Errorf("%d requests in ten minutes", n)
					}
					if f.health.Err() == nil {
						t.Error("health does not say so")
					}
					server.Fail(nil)
					store := f.store()
					f.shows(store, "a", "1")
					synctest.Wait()
					if err := f.health.Err(); err != nil {
						t.Errorf("health: %v", err)
					}
				})
			})
		}
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coreServer()
		server.Fail(func(streamtest.Request) *apierrors.StatusError { return answer(http.StatusTooManyRequests, 60) })
		f := newFixture(t, server)
		_ = f.Events(t.Context())
		time.Sleep(59 * time.Second)
		if n := len(server.Requests()); n != 1 {
			t.Errorf("%d requests before the server wants the second", n)
		}
		server.Fail(nil)
		f.store()
	})
}

func TestErrorsOfARunningWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coreServer()
		server.Put(configMaps, configMap("a", "1"))
		f := newFixture(t, server)
		store := f.store()
		for i, code := range []int{429, 500, 502, 503} {
			server.Fail(func(streamtest.Request) *apierrors.StatusError { return answer(code, 0) })
			server.Cut()
			value := fmt.Sprint(i + 2)
			server.Put(configMaps, configMap("a", value))
			time.Sleep(time.Minute)
			server.Fail(nil)
			f.shows(store, "a", value)
		}
		if n := initialRequests(server); n != 1 {
			t.Errorf("%d requests for the whole state: an error of a watch costs no list", n)
		}
	})
}

func initialRequests(server *streamtest.Server) (n int) {
	for _, r := range server.Requests() {
		if nothing := slices.Equal(r.Query["fieldSelector"], []string{"metadata.name=none"}); r.Initial || !r.Watch && !nothing {
			n++
		}
	}
	return n
}

// A connection that is half open: nothing comes and nothing breaks.
func TestHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coreServer()
		server.Put(configMaps, configMap("a", "1"))
		f := newFixture(t, server)
		store := f.store()
		for i := range 3 {
			thaw := server.Freeze()
			value := fmt.Sprint(i + 2)
			server.Put(configMaps, configMap("a", value))
			begin := time.Now()
			for f.health.Err() == nil {
				if time.Since(begin) > 7*time.Minute {
					t.Fatal("a connection that is half open is not noticed")
				}
				time.Sleep(time.Second)
			}
			time.Sleep(time.Hour)
			thaw()
			f.shows(store, "a", value)
		}
	})
}

// A watch that has fallen behind, without breaking.
func TestRefreshOvertakesTheWatch(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			server := coreServer()
			if !watchList {
				server.WithoutWatchList()
			}
			server.Put(configMaps, configMap("a", "1"))
			f := newFixture(t, server)
			store := f.store()
			for server.Watches() == 0 {
				time.Sleep(time.Millisecond)
			}
			server.Withhold()
			revision := server.Put(configMaps, configMap("a", "2"))
			time.Sleep(time.Second)
			f.shows(store, "a", "1")
			before := initialRequests(server)
			if err := f.Relist(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.shows(store, "a", "2")
			if n := initialRequests(server) - before; n < 1 || n > 2 {
				t.Errorf("%d requests for the initial state", n)
			}
			if err := f.WaitForRevision(t.Context(), revision); err != nil {
				t.Fatal(err)
			}
			if log := f.log.String(); log != "" {
				t.Errorf("a relistCall is no trouble, but the log says\n%s", log)
			}
		})
	}
}

// Calls of Relist that come while the server is away are served when it is back,
// and those that give up meanwhile get the reason.
func TestRefreshWaitsForTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coreServer()
		f := newFixture(t, server)
		store := f.store()
		server.Fail(func(streamtest.Request) *apierrors.StatusError { return answer(http.StatusServiceUnavailable, 0) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Relist(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "unable to handle the request") {
			t.Errorf("relistCall without a server: %v", err)
		}
		server.Put(configMaps, configMap("a", "1"))
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				if err := f.Relist(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		server.Fail(nil)
		calls.Wait()
		f.shows(store, "a", "1")
	})
}

// A server that is older than initial events watches on from the present and
// never says where the initial state ends.
func TestInitialEventsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coreServer().WithoutEndMarks()
		server.Put(configMaps, configMap("a", "1"))
		f := newFixture(t, server)
		begin := time.Now()
		store := f.store()
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("synced after %v", took)
		}
		f.shows(store, "a", "1")
		server.Put(configMaps, configMap("a", "2"))
		f.shows(store, "a", "2")
	})
}

func TestForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coreServer()
		server.Fail(func(streamtest.Request) *apierrors.StatusError {
			return apierrors.NewForbidden(configMaps.GroupResource(), "", errors.New("no role"))
		})
		f := newFixture(t, server)
		_ = f.Events(t.Context())
		time.Sleep(10 * time.Minute)
		if err := f.health.Err(); err == nil || !strings.Contains(err.Error(), "not allowed to watch configmaps") {
			t.Errorf("health: %v", err)
		}
		if n := len(server.Requests()); n < 5 || n > 60 {
			t.Errorf("%d requests in ten minutes", n)
		}
		if lines := len(f.log.Lines()); lines != 1 {
			t.Errorf("%d lines in the log, want 1:\n%s", lines, f.log.String())
		}
		server.Fail(nil)
		f.store()
		synctest.Wait()
		if err := f.health.Err(); err != nil {
			t.Errorf("health after the grant: %v", err)
		}
	})
}

func TestQuietWhenAllIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coreServer()
		f := newFixture(t, server)
		store := f.store()
		for i := range 60 {
			time.Sleep(time.Minute)
			server.Bookmark()
			server.Put(configMaps, configMap("a", fmt.Sprint(i)))
		}
		f.shows(store, "a", "59")
		if text := f.log.String(); text != "" {
			t.Errorf("an hour without faults is not quiet:\n%s", text)
		}
		if n := len(server.Requests()); n > 13 {
			t.Errorf("%d requests in an hour", n)
		}
	})
}

func TestBookmarksAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coreServer()
		f := newFixture(t, server)
		store := f.store()
		server.Bookmark()
		if err := store.WaitFor(t.Context(), key("not there"), server.Revision()); err != nil {
			t.Fatal(err)
		}
		if store.Revision() != server.Revision() {
			t.Errorf("revision %v, want %v", store.Revision(), server.Revision())
		}
	})
}

// Etcd was restored from a backup: what the stream goes on from is in the server's
// future, where nothing comes from.
func TestRevisionsGoBack(t *testing.T) {
	for name, outage := range map[string]func(*streamtest.Server){
		"after an outage": func(old *streamtest.Server) {
			old.Fail(func(streamtest.Request) *apierrors.StatusError { return answer(http.StatusServiceUnavailable, 0) })
			old.Cut()
			time.Sleep(time.Minute)
		},
		"while nobody noticed": func(*streamtest.Server) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old, restored := coreServer(), coreServer()
				for range 100 {
					old.Bookmark()
				}
				old.Put(configMaps, configMap("a", "new"))
				old.Put(configMaps, configMap("b", "new"))
				restored.Put(configMaps, configMap("a", "old"))
				var current atomic.Pointer[streamtest.Server]
				current.Store(old)
				f := newFixtureOf(t, old, stream.NewSource(func(ctx context.Context) (rest.Interface, error) {
					return current.Load().Connect()(ctx)
				}), streamtest.CoreThings())
				store := f.store()
				f.shows(store, "b", "new")
				outage(old)
				current.Store(restored)
				old.Cut()
				restored.Put(configMaps, configMap("c", "new"))
				f.shows(store, "a", "old")
				f.shows(store, "b", "")
				f.shows(store, "c", "new")
				restored.Put(configMaps, configMap("a", "newer"))
				f.shows(store, "a", "newer")
				if !strings.Contains(f.log.String(), "etcd may have been restored") {
					t.Errorf("the log does not tell:\n%s", f.log)
				}
			})
		})
	}
}

func TestConnectionIsAskedForEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := coreServer(), coreServer()
		first.Put(configMaps, configMap("a", "1"))
		second.Put(configMaps, configMap("a", "1"))
		servers := []*streamtest.Server{first, first, second}
		asked := 0
		f := newFixtureOf(t, first, stream.NewSource(func(ctx context.Context) (rest.Interface, error) {
			s := servers[min(asked, len(servers)-1)]
			if asked++; asked == 1 {
				return nil, errors.New("no server is chosen yet")
			}
			return s.Connect()(ctx)
		}), streamtest.CoreThings())
		store := f.store()
		f.shows(store, "a", "1")
		first.Cut()
		second.Put(configMaps, configMap("b", "1"))
		f.shows(store, "b", "1")
	})
}

func TestLastPageExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := coreServer().WithoutWatchList().WithPages(2)
		for i := range 7 {
			server.Put(configMaps, configMap(fmt.Sprint("n-", i), "1"))
		}
		var fail atomic.Int32
		fail.Store(1)
		server.Fail(func(r streamtest.Request) *apierrors.StatusError {
			if len(r.Query["continue"]) > 0 && r.Query["continue"][0] == "4" && fail.Add(-1) == 0 {
				return apierrors.NewResourceExpired("the page has expired")
			}
			return nil
		})
		f := newFixture(t, server)
		if n := f.store().Len(); n != 7 {
			t.Errorf("%d objects, want 7", n)
		}
	})
}

// cutBodies ends the first bodies early, as if nothing was wrong.
type cutBodies struct {
	http.RoundTripper
	left  *atomic.Int64
	bytes func() int64
}

func (c cutBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil && c.left.Add(-1) >= 0 {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, c.bytes()), resp.Body}
	}
	return resp, err
}

// A list or a watch that ends in the middle, wherever that is, is no list and no
// loss.
func TestTruncatedAnswers(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		for _, kind := range []string{"protobuf", "json"} {
			t.Run(fmt.Sprint(kind, " watchlist ", watchList), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { truncatedAnswers(t, watchList, kind == "json") })
			})
		}
	}
}

func truncatedAnswers(t *testing.T, watchList, custom bool) {
	server := streamtest.NewServer()
	if !watchList {
		server.WithoutWatchList()
	}
	gvr, declared := configMaps, streamtest.CoreThings()
	put := func(name, value string) { server.Put(gvr, configMap(name, value)) }
	if custom {
		gvr, declared = streamtest.Widgets, streamtest.CustomThings()
		put = func(name, value string) {
			server.Put(gvr, map[string]any{
				"metadata": map[string]any{"namespace": "things", "name": name}, "data": map[string]any{"value": value},
			})
		}
	}
	server.Serve(gvr, map[bool]string{false: "ConfigMap", true: "Widget"}[custom], custom)
	for i := range 5 {
		put(fmt.Sprint("n-", i), "1")
	}
	var left, size atomic.Int64
	left.Store(300)
	rt := cutBodies{streamtest.Transport(server), &left, func() int64 { return size.Add(7) }}
	f := newFixtureOf(t, server, stream.NewSource(streamtest.ConnectTo(rt)), declared)
	events := f.Events(t.Context())
	for range 5 {
		if e := <-events; e.Kind != stream.Upsert || e.Object.Value() != "1" {
			t.Fatalf("%v %v", e.Kind, e.Key)
		}
	}
	if e := <-events; !e.Synced {
		t.Fatalf("%v %v in place of Sync: a part of a list was taken for the whole", e.Kind, e.Key)
	}
	left.Store(100)
	size.Store(0)
	server.Cut()
	put("n-0", "2")
	for {
		e := <-events
		if e.Kind == stream.Delete {
			t.Fatalf("%v is deleted, says a part of a list", e.Key)
		}
		if e.Key.Name == "n-0" && e.Object.Value() == "2" {
			break
		}
	}
}

func TestUnreadableObjects(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprint("watchlist ", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { unreadableObjects(t, watchList) })
		})
	}
}

func unreadableObjects(t *testing.T, watchList bool) {
	server := streamtest.NewServer()
	if !watchList {
		server.WithoutWatchList()
	}
	widgets := streamtest.Widgets
	server.Serve(widgets, "Widget", true)
	widget := func(name string, data any) map[string]any {
		return map[string]any{"metadata": map[string]any{"namespace": "things", "name": name}, "data": data}
	}
	good := map[string]any{"value": "1"}
	bad := []int{1}
	server.Put(widgets, widget("always", bad))
	server.Put(widgets, widget("good", good))
	server.Put(widgets, widget("turns", good))
	f := newFixtureOf(t, server, stream.NewSource(server.Connect()), streamtest.CustomThings())
	store := f.store()
	wrong := func(want ...string) {
		t.Helper()
		time.Sleep(time.Minute) // for a list that is under way
		var got []string
		for _, k := range store.Unreadable() {
			got = append(got, k.Name)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("unreadable %v, want %v", got, want)
		}
		if (f.health.Err() != nil) != (len(want) > 0) {
			t.Errorf("health: %v", f.health.Err())
		}
	}
	f.shows(store, "good", "1")
	f.shows(store, "turns", "1")
	wrong("always")

	// In the watch: it keeps the state it had, others flow.
	server.Put(widgets, widget("turns", bad))
	server.Put(widgets, widget("good", map[string]any{"value": "2"}))
	f.shows(store, "good", "2")
	f.shows(store, "turns", "1")
	wrong("always", "turns")

	// In a list: it is there, so it is not deleted.
	server.Delete(widgets, key("good"))
	server.Compact()
	server.Cut()
	f.shows(store, "good", "")
	f.shows(store, "turns", "1")
	wrong("always", "turns")

	// So broken that it has no name: nothing is deleted.
	server.PutRaw(widgets, key("turns"), []byte(`{"metadata":{"name":7}}`))
	server.Put(widgets, widget("other", good))
	server.Delete(widgets, key("always"))
	server.Compact()
	server.Cut()
	f.shows(store, "other", "1")
	f.shows(store, "turns", "1")
	if n := len(store.Unreadable()); n == 0 {
		t.Error("an object without a name is not counted")
	}

	// Readable again, and deleted.
	server.Put(widgets, widget("turns", map[string]any{"value": "3"}))
	server.Compact()
	server.Cut()
	f.shows(store, "turns", "3")
	wrong()
	server.Delete(widgets, key("turns"))
	f.shows(store, "turns", "")
	if lines := f.log.Count("unreadable"); lines > 4 {
		t.Errorf("%d lines about unreadable objects:\n%s", lines, f.log.String())
	}
}

// crds is the resource that CustomResourceDefinitions are.
var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func defineWidgets(server *streamtest.Server) {
	server.Put(crds, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: streamtest.Widgets.GroupResource().String()}})
}

func widget(name, value string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"namespace": "things", "name": name}, "data": map[string]any{"value": value},
	}
}

func requestsOf(server *streamtest.Server, gvr schema.GroupVersionResource) (n int) {
	for _, r := range server.Requests() {
		if strings.HasSuffix(r.Path, "/"+gvr.Resource) {
			n++
		}
	}
	return n
}

func TestLateDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := streamtest.NewServer()
		server.Serve(crds, "CustomResourceDefinition", false)
		source := stream.NewSource(server.Connect())
		f := newFixtureOf(t, server, source, streamtest.CustomThings())
		second := newFixtureOf(t, server, source, streamtest.CustomThings(), stream.WithName("second"))
		events, others := f.Events(t.Context()), second.Events(t.Context())
		time.Sleep(time.Hour)
		if n := requestsOf(server, streamtest.Widgets); n > 4 {
			t.Errorf("%d requests for a resource that is not there: it is to be waited for", n)
		}
		if n := server.Watches(); n != 1 {
			t.Errorf("%d watches of definitions for two streams, want 1", n)
		}
		if err := f.health.Err(); err == nil || !strings.Contains(err.Error(), "widgets.streamtest.example.com") {
			t.Errorf("health: %v", err)
		}
		if f.State().Synced {
			t.Error("synced without a definition")
		}

		begin := time.Now()
		defineWidgets(server)
		time.Sleep(300 * time.Millisecond) // defined, not served yet
		server.Serve(streamtest.Widgets, "Widget", true)
		server.Put(streamtest.Widgets, widget("a", "1"))
		for _, ch := range []<-chan streamtest.Event[streamtest.Thing]{events, others} {
			for _, want := range []string{"upsert", "sync"} {
				if e := <-ch; kindOf(e) != want {
					t.Fatalf("%v, want %v", kindOf(e), want)
				}
			}
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("picked up after %v", took)
		}
		synctest.Wait()
		if n := server.Watches(); n != 2 {
			t.Errorf("%d watches, want one per stream: definitions are watched only while somebody waits", n)
		}
		if err := f.health.Err(); err != nil {
			t.Errorf("health: %v", err)
		}
	})
}

func TestDefinitionGoesAndComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := streamtest.NewServer()
		server.Serve(crds, "CustomResourceDefinition", false)
		defineWidgets(server)
		server.Serve(streamtest.Widgets, "Widget", true)
		server.Put(streamtest.Widgets, widget("a", "1"))
		f := newFixtureOf(t, server, stream.NewSource(server.Connect()), streamtest.CustomThings())
		events := f.Events(t.Context())
		expect := func(want string) {
			t.Helper()
			e := <-events
			got := kindOf(e)
			if e.Object != nil {
				got += " " + e.Key.Name + "=" + e.Object.Value()
			}
			if got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		expect("upsert a=1")
		expect("sync")

		// A server that starts answers 404 for a while. That deletes nothing.
		server.Forget(streamtest.Widgets)
		time.Sleep(20 * time.Second)
		if state := f.State(); state.Objects != 1 {
			t.Fatalf("%d objects while the definition is there", state.Objects)
		}
		server.Delete(crds, slim.Key{Name: streamtest.Widgets.GroupResource().String()})
		expect("delete a=1")
		time.Sleep(time.Hour)
		server.Serve(streamtest.Widgets, "Widget", true)
		server.Put(streamtest.Widgets, widget("b", "1"))
		defineWidgets(server)
		expect("upsert b=1")
	})
}

func TestDefinitionsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := streamtest.NewServer()
		server.Serve(crds, "CustomResourceDefinition", false)
		server.Serve(streamtest.Widgets, "Widget", true)
		server.Put(streamtest.Widgets, widget("a", "1"))
		server.Fail(func(r streamtest.Request) *apierrors.StatusError {
			if strings.Contains(r.Path, crds.Resource) {
				return apierrors.NewForbidden(crds.GroupResource(), "", errors.New("no role"))
			}
			return nil
		})
		f := newFixtureOf(t, server, stream.NewSource(server.Connect()), streamtest.CustomThings())
		store := f.store()
		f.shows(store, "a", "1")
		server.Forget(streamtest.Widgets)
		before := requestsOf(server, streamtest.Widgets)
		time.Sleep(time.Hour)
		f.shows(store, "a", "") // asked often enough
		if n := requestsOf(server, streamtest.Widgets) - before; n < 20 || n > 200 {
			t.Errorf("%d requests in an hour of polling", n)
		}
		server.Serve(streamtest.Widgets, "Widget", true)
		server.Put(streamtest.Widgets, widget("b", "1"))
		begin := time.Now()
		f.shows(store, "b", "1")
		if took := time.Since(begin); took > 2*time.Minute {
			t.Errorf("picked up after %v", took)
		}
	})
}

func TestCoreResourceThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := streamtest.NewServer()
		f := newFixture(t, server)
		_ = f.Events(t.Context())
		time.Sleep(time.Hour)
		if n := len(server.Requests()); n > 200 {
			t.Errorf("%d requests in an hour", n)
		}
		server.Serve(configMaps, "ConfigMap", false)
		f.store()
	})
}

func TestMetadataOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type metadataOnly struct {
			slim.Meta `json:"metadata"`
		}
		server := streamtest.NewServer()
		server.Serve(streamtest.Widgets, "Widget", true)
		server.Put(streamtest.Widgets, widget("a", "1"))
		for range 2 { // with initial events, and with lists
			s, err := stream.New(stream.NewSource(server.Connect()), stream.Metadata[metadataOnly](streamtest.Widgets), stream.WithLinger(0))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			store, err := s.Store(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if obj, ok := store.Get(key("a")); !ok || obj.UID.IsZero() {
				t.Errorf("%+v", obj)
			}
			cancel()
			s.Close()
			server.WithoutWatchList()
		}
	})
}

// Built-in resources have no definition whose absence would say that they do not exist.
func TestMetadataOfBuiltInResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type metadataOnly struct {
			slim.Meta `json:"metadata"`
		}
		server := streamtest.NewServer()
		server.Serve(crds, "CustomResourceDefinition", false)
		server.Serve(configMaps, "ConfigMap", false)
		server.Put(configMaps, configMap("a", "1"))
		s, err := stream.New(stream.NewSource(server.Connect()), stream.Metadata[metadataOnly](configMaps), stream.WithLinger(0))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		store, err := s.Store(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server.Forget(configMaps)
		time.Sleep(time.Minute)
		if n := store.Len(); n != 1 {
			t.Fatalf("%d objects after answers of a server that starts", n)
		}
		server.Serve(configMaps, "ConfigMap", false)
		server.Put(configMaps, configMap("b", "1"))
		time.Sleep(2 * time.Minute)
		if _, found := store.Get(key("b")); !found || requestsOf(server, crds) > 0 {
			t.Errorf("%d objects, %d requests for definitions", store.Len(), requestsOf(server, crds))
		}
	})
}

func TestKindsAreChecked(t *testing.T) {
	type noMeta struct {
		Data slim.Labels `json:"data"`
	}
	type misfit struct {
		slim.Meta `json:"metadata"`
		Data      []string `json:"data"`
		Other     string   `json:"other"`
	}
	for want, err := range map[string]error{
		"empty":                         stream.Kind[streamtest.Thing]{}.Check(),
		"slim.Meta":                     stream.Core[noMeta, corev1.ConfigMap](configMaps).Check(),
		"has no field \"other\"":        stream.Core[misfit, corev1.ConfigMap](configMaps).Check(),
		"cannot keep map[string]string": stream.Core[misfit, corev1.ConfigMap](configMaps).Check(),
		"label selector":                streamtest.CoreThings().MatchingLabels("a in b").Check(),
		"field selector":                streamtest.CoreThings().MatchingFields("a").Check(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if _, err := stream.New(stream.NewSource(nil), stream.Core[noMeta, corev1.ConfigMap](configMaps)); err == nil {
		t.Error("New takes what Check refuses")
	}
	for _, err := range []error{
		stream.Pods.Check(), stream.Namespaces.Check(), stream.Nodes.Check(), stream.Services.Check(), stream.EndpointSlices.Check(),
		streamtest.CoreThings().InNamespace("x").MatchingLabels("a=b").MatchingFields("metadata.name=c").Check(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

// Events subscribes.
func (f *fixture) Events(ctx context.Context) <-chan streamtest.Event[streamtest.Thing] {
	return streamtest.Each(ctx, f.Stream)
}

func kindOf[T any](e streamtest.Event[T]) string {
	if e.Synced {
		return "sync"
	}
	return e.Kind.String()
}
