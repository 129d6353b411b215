// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
)

// objectServer answers a GET of the one object that it has, nil for none.
type objectServer struct{ object *unstructured.Unstructured }

func (s *objectServer) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if s.object == nil {
		w.WriteHeader(http.StatusNotFound)
		return w.Result(), nil
	}
	_ = json.NewEncoder(w).Encode(s.object.Object)
	return w.Result(), nil
}

// write plans a write, and returns the resourceVersion of what is stored.
func write(t *testing.T, p *dryrun.Plan, server *objectServer, method, name, body string) slim.Revision {
	t.Helper()
	target := dryrun.Target{Resource: configMaps, Namespace: "things", Name: name}
	path := "/api/v1/namespaces/things/configmaps"
	if method == http.MethodPost {
		target.Name = ""
	} else {
		path += "/" + name
	}
	req := httptest.NewRequestWithContext(t.Context(), method, "https://server"+path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/merge-patch+json")
	resp, err := p.Objects().Write(req, target, "test", server)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s", method, name, text)
	}
	u := &unstructured.Unstructured{}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&u.Object); err != nil {
		t.Fatal(err)
	}
	revision, err := slim.ParseRevision(u.GetResourceVersion())
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// full is a ConfigMap as a server has it.
func full(name, value string, revision slim.Revision) *unstructured.Unstructured {
	u := streamtest.NewConfigMap("things", name, value)
	u.SetUID("11111111-1111-4111-8111-111111111111")
	u.SetResourceVersion(revision.String())
	return u
}

func value(value string) string { return `{"data":{"value":"` + value + `"}}` }

// A stream shows what is planned in place of what the server has: at once, and
// after a new list.
func TestPlanIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, p := streamtest.NewServer(), dryrun.New(time.Minute)
		server.Serve(configMaps, "ConfigMap", false)
		at := server.Put(configMaps, configMap("a", "server"))
		server.Put(configMaps, configMap("b", "server"))
		direct := &objectServer{full("a", "server", at)}
		f := newFixtureOf(t, server, stream.Planning(stream.NewSource(server.Connect()), p), streamtest.CoreThings())
		s := f.store()
		before := s.Revision()

		written := write(t, p, direct, http.MethodPatch, "a", value("planned"))
		if err := s.WaitFor(t.Context(), key("a"), written); err != nil {
			t.Fatal(err)
		}
		f.shows(s, "a", "planned")
		if s.Revision() != before {
			t.Errorf("the plan counts as progress of the server: %s, was %s", s.Revision(), before)
		}
		write(t, p, &objectServer{}, http.MethodPost, "c", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"value":"new"}}`)
		f.shows(s, "c", "new")
		if err := f.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.shows(s, "a", "planned")
		f.shows(s, "c", "new")
		f.shows(s, "b", "server")
		if s.Len() != 3 {
			t.Errorf("%d objects", s.Len())
		}

		// Another writer writes: the object has both changes.
		server.Put(configMaps, configMap("b", "other"))
		f.shows(s, "b", "other")
		direct.object = full("a", "server", server.Revision()+1) // as it is about to be
		direct.object.SetLabels(map[string]string{"by": "others"})
		at = server.Put(configMaps, configMap("a", "server"))
		synctest.Wait()
		f.shows(s, "a", "planned")
		if state, base, held := p.Objects().Planned(configMaps, key("a")); !held || base != uint64(at) || state.GetLabels()["by"] != "others" {
			t.Errorf("planned upon %d, not %d: %v", base, at, state)
		}

		// The server's delete holds; a planned one holds against the server.
		server.Delete(configMaps, key("a"))
		f.shows(s, "a", "")
		direct.object = full("b", "other", s.Revision())
		req := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "https://server/api/v1/namespaces/things/configmaps/b", nil)
		if _, err := p.Objects().Write(req, dryrun.Target{Resource: configMaps, Namespace: "things", Name: "b"}, "test", direct); err != nil {
			t.Fatal(err)
		}
		f.shows(s, "b", "")
		if err := f.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.shows(s, "b", "")
		if s.Len() != 1 {
			t.Errorf("%d objects", s.Len())
		}
	})
}
