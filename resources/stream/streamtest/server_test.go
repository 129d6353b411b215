// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

// A bookmark that is due together with a change comes after it, and does not take its place.
func TestBookmarkComesAfterChanges(t *testing.T) {
	things := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	thing := func(name string) map[string]any { return map[string]any{"metadata": map[string]any{"name": name}} }
	for range 20 { // either may be noticed first
		synctest.Test(t, func(t *testing.T) {
			s := NewServer()
			s.Serve(things, "Thing", true)
			events := watchFor3s(t, s, "/apis/example.com/v1/things")
			a := s.Put(things, thing("a"))
			synctest.Wait() // until it is being sent, and not read
			b := s.Put(things, thing("b"))
			time.Sleep(time.Second) // until the bookmark is due
			want := []string{fmt.Sprintf("ADDED %s", a), fmt.Sprintf("ADDED %s", b)}
			if got := events(); !slices.Equal(got, want) {
				t.Errorf("the watch shows %q, not %q", got, want)
			}
		})
	}
}

// watchFor3s opens a watch, and returns a function that reads it to its end.
func watchFor3s(t *testing.T, s *Server, path string) (events func() []string) {
	t.Helper()
	query := fmt.Sprintf("?watch=true&allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion=%s", s.Revision())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server.test"+path+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := Transport(s).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return func() (all []string) {
		defer func() { _ = response.Body.Close() }()
		for d := json.NewDecoder(response.Body); ; {
			var e struct {
				Type   string
				Object struct {
					Metadata struct{ ResourceVersion string }
				}
			}
			if d.Decode(&e) != nil {
				return all
			}
			all = append(all, e.Type+" "+e.Object.Metadata.ResourceVersion)
		}
	}
}
