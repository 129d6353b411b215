// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/waittest"
)

type selecting struct {
	Color string `flag:"color" usage:"Value of the label of the objects to watch"`
}

type colored struct {
	slim.Meta `json:"metadata"`
}

type rare struct {
	slim.Meta `json:"metadata"`
}

// A warm replica runs the streams of all modules, with the selectors that options give them, but for those on demand.
func TestProvideSelectedAndOnDemand(t *testing.T) {
	selectors := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/nodes":
			select {
			case selectors <- r.URL.Query().Get("labelSelector"):
			default:
			}
		case "/api/v1/configmaps":
			t.Errorf("a stream on demand asks for %s", r.URL)
		}
		http.Error(w, "away", http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	var streams *stream.Streams
	duty := cell.Module("duty", "Watches objects of a color",
		cell.Config(selecting{}),
		stream.Provide(stream.Core[rare, corev1.ConfigMap](corev1.SchemeGroupVersion.WithResource("configmaps")), stream.OnDemand()),
		stream.ProvideSelected(stream.Core[colored, corev1.Node](corev1.SchemeGroupVersion.WithResource("nodes")), func(k stream.Kind[colored], c selecting) stream.Kind[colored] {
			return k.MatchingLabels("color=" + c.Color)
		}),
		cell.Invoke(func(_ stream.Resource[rare], _ stream.Resource[colored], s *stream.Streams) { streams = s }),
	)
	h := hive.New("operator", cell.Set(explain.Cell, dryrun.Cell, k8s.Cell, stream.Cell, duty), hive.LogTo(io.Discard),
		hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	if err := flags.Parse([]string{"--k8s-api-server=" + server.URL, "--color=red"}); err != nil {
		t.Fatal(err)
	}
	if err := h.Configure(flags); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-selectors:
		if got != "color=red" {
			t.Errorf("the selector is %q", got)
		}
	case <-time.After(waittest.Limit):
		t.Error("the stream does not run")
	}
	running := map[string]bool{}
	for _, s := range streams.States() {
		running[s.Name] = s.Running
	}
	if running["configmaps"] || !running["nodes"] {
		t.Errorf("running are %v", running)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
