// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// machinesAPI is the URL of a server at which a duty of the tests registers nodes.
const machinesAPI = "SKEP_TEST_MACHINES_API"

var machinesCell = cell.Module("machines", "Registers nodes at another server",
	cell.ProvidePrivate(newMachines),
	cell.Job("register", func(l *reconcile.Queue[string]) job.Job { return l.Job() }),
	cell.Job("watch", func(l *reconcile.Queue[string], nodes stream.Resource[ciliumio.Node]) job.Job {
		if os.Getenv(machinesAPI) == "" {
			return job.Job{}
		}
		return job.OneShot(func(ctx context.Context) error {
			for batch := range nodes.Changes(ctx) {
				for _, change := range batch.Changes {
					if change.Kind == stream.Upsert {
						l.Add(change.Key.Name, k8s.Trigger{Kind: "CiliumNode", Name: change.Key.Name})
					}
				}
			}
			return ctx.Err()
		})
	}),
)

func newMachines(door outside.Scope, scope reconcile.Deps) *reconcile.Queue[string] {
	echo := func(_ *http.Request, body []byte) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))}
	}
	client := &http.Client{Transport: outside.New(door, "machines", outside.Limits{}).Transport(http.DefaultTransport, echo)}
	return reconcile.NewQueue(scope, "register", func(ctx context.Context, node string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, os.Getenv(machinesAPI)+"/machines/"+node, strings.NewReader(`{"node":"`+node+`"}`))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// A plan makes no call of a duty to another server that would change something there: it lists it. The run makes it.
func TestPlanMakesNoCallsOutside(t *testing.T) {
	var mu sync.Mutex
	var called []string
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		called = append(called, r.Method+" "+r.URL.Path)
	}))
	t.Cleanup(api.Close)
	calls := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(slices.Values(called))
	}
	w := newWorld(t)
	first, _ := w.run("first", nil)
	w.awaitDefinition("CiliumNode")
	first.leads()
	if code := first.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	w.addNode("a")
	w.addNode("b")
	t.Setenv(machinesAPI, api.URL)
	text, code := w.plan(w.Kubeconfig())
	if code != 2 || strings.Count(string(text), "put machines machines/") != 2 {
		t.Errorf("exit code %d\n%s", code, text)
	}
	if c := calls(); len(c) > 0 {
		t.Errorf("the plan has called: %q", c)
	}
	o, _ := w.run("second", nil)
	o.until("the run calls", func() bool { return len(calls()) >= 2 })
	o.until("the calls are among the writes", func() bool { return strings.Count(o.ask("writes"), "put machines/machines ") >= 2 })
}
