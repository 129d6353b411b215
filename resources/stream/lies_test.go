// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/streamtest"
)

// replaced is a transport whose responses are replaced as long as it says so.
type replaced struct {
	http.RoundTripper
	on   atomic.Bool
	n    atomic.Int64             // responses replaced
	only func(*http.Request) bool // nil for all
	with func(*http.Request, *http.Response)
}

func (r *replaced) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	if err == nil && r.on.Load() && (r.only == nil || r.only(req)) {
		if r.n.Add(1) > 500 {
			time.Sleep(10 * time.Second) // a loop without a pause would stop the clock
		}
		_ = resp.Body.Close()
		resp.Header = http.Header{"Content-Type": {"application/json"}}
		r.with(req, resp)
	}
	return resp, err
}

func says(code int, contentType, body string) func(*http.Request, *http.Response) {
	return func(_ *http.Request, resp *http.Response) {
		resp.StatusCode, resp.Status = code, fmt.Sprint(code)
		resp.Header.Set("Content-Type", contentType)
		resp.Body = io.NopCloser(bytes.NewReader([]byte(body)))
	}
}

func tooLarge() *apierrors.StatusError {
	err := apierrors.NewTimeoutError("Too large resource version: 9, current: 8", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	return err
}

func statusText(err *apierrors.StatusError) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":%q,"details":{"causes":[{"reason":%q}]}}`,
		err.ErrStatus.Reason, err.ErrStatus.Code, err.ErrStatus.Message, func() string {
			if d := err.ErrStatus.Details; d != nil && len(d.Causes) > 0 {
				return string(d.Causes[0].Type)
			}
			return ""
		}())
}

// K8S-11: whatever is answered to every list and watch, for however long, the stream asks
// less and less often, is degraded by the current reason, warns once, and recovers.
func TestAServerThatAlwaysAnswersTheSame(t *testing.T) {
	expired := statusText(apierrors.NewResourceExpired("too old"))
	for name, with := range map[string]func(*http.Request, *http.Response){
		"410":                   says(410, "application/json", expired),
		"410 text":              says(410, "text/plain", "gone"),
		"410 in the stream":     says(200, "application/json", `{"type":"ERROR","object":`+expired+`}`),
		"504 too large":         says(504, "application/json", statusText(tooLarge())),
		"HTML":                  says(200, "text/html", "<html>Welcome to nginx!</html>"),
		"HTML as JSON":          says(200, "application/json", "<html>Welcome to nginx!</html>"),
		"empty":                 says(200, "application/json", ""),
		"null":                  says(200, "application/json", "null"),
		"Status success":        says(200, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Success"}`),
		"an object":             says(200, "application/json", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"5"}}`),
		"a list of no revision": says(200, "application/json", `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}`),
		"a list of revision 0":  says(200, "application/json", `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"0"},"items":[]}`),
		"half a list":           says(200, "application/json", `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`),
		"204":                   says(204, "application/json", ""),
		"400 text":              says(400, "text/plain", "bad"),
		"401 text":              says(401, "text/plain", "who"),
		"403 text":              says(403, "text/html", "<html>no</html>"),
		"404 text":              says(404, "text/plain", "404 page not found"),
		"409 text":              says(409, "text/plain", "conflict"),
	} {
		for _, watchList := range []bool{true, false} {
			for _, began := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, watchlist %t, began %t", name, watchList, began), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { alwaysTheSame(t, with, watchList, began) })
				})
			}
		}
	}
}

func alwaysTheSame(t *testing.T, with func(*http.Request, *http.Response), watchList, began bool) {
	server := coreServer()
	if !watchList {
		server.WithoutWatchList()
	}
	server.Put(configMaps, configMap("a", "1"))
	rt := &replaced{RoundTripper: streamtest.Transport(server), with: with}
	f := newFixtureOf(t, server, stream.NewSource(streamtest.ConnectTo(rt)), streamtest.CoreThings())
	go func() {
		for range f.Changes(t.Context()) {
		}
	}()
	if began {
		f.shows(f.store(), "a", "1")
		rt.on.Store(true)
		server.Compact()
		server.Cut()
	} else {
		rt.on.Store(true)
	}
	time.Sleep(10 * time.Minute)
	before := len(server.Requests())
	time.Sleep(10 * time.Minute)
	if n := len(server.Requests()) - before; n > 60 {
		t.Errorf("%d requests in ten minutes", n)
	}
	if before > 90 {
		t.Errorf("%d requests in the first ten minutes", before)
	}
	if f.health.Err() == nil {
		t.Error("health does not say so")
	}
	if lines := f.log.Lines(); len(lines) != 1 {
		t.Errorf("%d lines in the log, want 1:\n%s", len(lines), strings.Join(lines[:min(len(lines), 8)], "\n"))
	}
	rt.on.Store(false)
	server.Put(configMaps, configMap("a", "2"))
	f.shows(f.store(), "a", "2")
	time.Sleep(time.Minute)
	if err := f.health.Err(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// K8S-11: a list of another kind, or of none, is not the list that was asked for, however
// empty it is: no object is deleted because of it. Nor because of a 404 that a proxy
// before the API server returns for everything.
func TestALieDeletesNothing(t *testing.T) {
	for name, with := range map[string]func(*http.Request, *http.Response){
		"a list of no kind":      says(200, "application/json", `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"900"},"items":[]}`),
		"a list of another kind": says(200, "application/json", `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"900"},"items":[]}`),
		"a list of another API":  says(200, "application/json", `{"kind":"WidgetList","apiVersion":"example.org/v7","metadata":{"resourceVersion":"900"},"items":[]}`),
		"a list without a kind":  says(200, "application/json", `{"metadata":{"resourceVersion":"900"},"items":[]}`),
		"404 text":               says(404, "text/plain", "404 page not found"),
		"404":                    says(404, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`),
	} {
		for _, watchList := range []bool{true, false} {
			for _, custom := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, watchlist %t, custom %t", name, watchList, custom), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { lieDeletesNothing(t, with, watchList, custom) })
				})
			}
		}
	}
}

func lieDeletesNothing(t *testing.T, with func(*http.Request, *http.Response), watchList, custom bool) {
	server := coreServer()
	if !watchList {
		server.WithoutWatchList()
	}
	server.Serve(crds, "CustomResourceDefinition", false)
	server.Serve(streamtest.Widgets, "Widget", true)
	defineWidgets(server)
	kind, put := streamtest.CoreThings(), func(value string) { server.Put(configMaps, configMap("a", value)) }
	if custom {
		kind, put = streamtest.CustomThings(), func(value string) { server.Put(streamtest.Widgets, widget("a", value)) }
	}
	put("1")
	rt := &replaced{RoundTripper: streamtest.Transport(server), with: with}
	if !watchList { // the watch hears the truth, which is that it has to list
		rt.only = func(r *http.Request) bool { return r.URL.Query().Get("watch") == "" }
	}
	f := newFixtureOf(t, server, stream.NewSource(streamtest.ConnectTo(rt)), kind)
	store := f.store()
	f.shows(store, "a", "1")
	rt.on.Store(true)
	server.Compact()
	server.Cut()
	for range 60 {
		time.Sleep(time.Minute)
		if _, ok := store.Get(key("a")); !ok {
			t.Fatal("the object is gone")
		}
	}
	if f.health.Err() == nil {
		t.Error("health does not say so")
	}
	rt.on.Store(false)
	put("2")
	f.shows(store, "a", "2")
}

// K8S-11: an event without a resourceVersion does not have the watch continue from no known revision, after which what was deleted
// meanwhile would stay.
func TestAWatchWithoutRevisionsMissesNothing(t *testing.T) {
	const meta = `"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":%q}`
	for name, event := range map[string]string{
		"bookmark, zero":  `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"0"}}}`,
		"bookmark, empty": `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":""}}}`,
		"modified, zero":  `{"type":"MODIFIED","object":{` + fmt.Sprintf(meta, "0") + `}}`,
		"deleted, empty":  `{"type":"DELETED","object":{` + fmt.Sprintf(meta, "") + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := coreServer()
				server.Put(configMaps, configMap("a", "1"))
				server.Put(configMaps, configMap("b", "1"))
				rt := &replaced{RoundTripper: streamtest.Transport(server), with: says(200, "application/json", event+"\n"), only: func(r *http.Request) bool {
					return r.URL.Query().Get("watch") != "" && r.URL.Query().Get("sendInitialEvents") == ""
				}}
				f := newFixtureOf(t, server, stream.NewSource(streamtest.ConnectTo(rt)), streamtest.CoreThings())
				store := f.store()
				f.shows(store, "b", "1")
				rt.on.Store(true)
				server.Cut()
				time.Sleep(time.Minute)
				server.Delete(configMaps, key("b"))
				rt.on.Store(false)
				time.Sleep(10 * time.Minute)
				if _, ok := store.Get(key("b")); ok {
					t.Error("the deleted object is still in the store")
				}
				if _, ok := store.Get(key("a")); !ok {
					t.Error("the other object is not in the store")
				}
			})
		})
	}
}
