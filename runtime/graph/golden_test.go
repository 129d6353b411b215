// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/query"
	"github.com/skep-operator/skep/runtime/graph/render"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample"
	"github.com/skep-operator/skep/runtime/hive"
)

var update = flag.Bool("update", false, "write the golden files anew")

// take makes the graph of the sample operator anew.
func take(t *testing.T, args ...string) *graph.Graph {
	t.Helper()
	h := hive.New("operator", sample.Cells, hive.Environ(nil))
	flags := h.FlagSet()
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := h.Configure(flags); err != nil {
		t.Fatal(err)
	}
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	g := h.Graph()
	for i := range g.Modules { // what is not the sample's own changes with the hive
		if m := &g.Modules[i]; m.ID == "hive" {
			m.Declared, m.Options = "", nil
		}
	}
	for i := range g.Nodes {
		if g.Nodes[i].Module == "hive" {
			g.Nodes[i].Declared = ""
		}
	}
	return g
}

// written is a graph as text.
func written(write func(io.Writer, *graph.Graph) error, g *graph.Graph) func(io.Writer) error {
	return func(w io.Writer) error { return write(w, g) }
}

// live makes it look like that of a running hive, with timings and health that
// are the same every time.
func live(t *testing.T) *graph.Graph {
	g := take(t, "--kvstore=etcd", "--cluster-name=one")
	for i := range g.Orders {
		for j := range g.Orders[i].Steps {
			g.Orders[i].Steps[j].StartNanos = int64(1+(j*7)%5) * 1_700_000
		}
	}
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Reached && n.Kind == graph.KindConstructor {
			n.BuildNanos = int64(1+(i*13)%11) * 12_345
		}
	}
	for i := range g.Modules {
		switch m := &g.Modules[i]; {
		case m.ID == "" || !m.Enabled:
		case m.ID == "kvstore":
			m.Health = "Degraded"
		case m.ID == "crds":
			m.Health = "Stopped"
		default:
			m.Health = "OK"
		}
	}
	return g
}

func golden(t *testing.T, file string, write func(io.Writer) error) {
	t.Helper()
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("%s is not what is written now; look at it, and run the test with -update where it is right:\n%s", path, firstDifference(got.String(), string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "got:  " + g[i] + "\nwant: " + w[i]
		}
	}
	return "one of them ends early"
}

func TestGolden(t *testing.T) {
	g := take(t)
	golden(t, "operator.json", g.WriteJSON)
	golden(t, "operator.txt", written(render.WriteText, g))
	golden(t, "operator.dot", func(w io.Writer) error { return render.WriteDot(w, g, render.Options{}) })
	golden(t, "operator-full.dot", func(w io.Writer) error { return render.WriteDot(w, g, render.Options{Full: true}) })
	golden(t, "operator.mmd", func(w io.Writer) error { return render.WriteMermaid(w, g, render.Options{}) })
	golden(t, "operator-full.mmd", func(w io.Writer) error { return render.WriteMermaid(w, g, render.Options{Full: true}) })
	golden(t, "operator.cells.txt", func(w io.Writer) error { return render.WriteCells(w, g, false) })
	golden(t, "operator.cells-verbose.txt", func(w io.Writer) error { return render.WriteCells(w, g, true) })
	golden(t, "operator.order.txt", written(render.WriteOrder, g))
	golden(t, "operator.timeline.txt", written(render.WriteTimeline, g))
}

func TestGoldenLive(t *testing.T) {
	g := live(t)
	golden(t, "live.json", g.WriteJSON)
	golden(t, "live.txt", written(render.WriteText, g))
	golden(t, "live.dot", func(w io.Writer) error { return render.WriteDot(w, g, render.Options{}) })
	golden(t, "live.order.txt", written(render.WriteOrder, g))
	golden(t, "live.timeline.txt", written(render.WriteTimeline, g))
	golden(t, "live.health.txt", written(render.WriteHealth, g))
}

// whys are queries, each the name of its golden file.
var whys = []string{
	"k8s", "kvstore", "ipam.clusterpool", "identity", "nodesync", "leader", "acme-lbipam", // cells
	"*k8s.Client", "Pools", "stream.Resource[stream.CiliumNode]", "Resource", "transport", "status.Route", "Config", // types
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/kvstore.Client",
	"--kvstore", "ipam", "enable-lb-ipam", "--identity-gc-interval=1h", // flags
}

func TestGoldenWhy(t *testing.T) {
	g := take(t)
	golden(t, "operator.why.txt", func(w io.Writer) error {
		for _, word := range whys {
			answer, err := query.Why(g, word)
			if err != nil {
				return err
			}
			if _, err := io.WriteString(w, "# why "+word+"\n"); err != nil {
				return err
			}
			if err := render.WriteAnswer(w, answer); err != nil {
				return err
			}
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
		return nil
	})
}
