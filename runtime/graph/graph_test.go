// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/query"
	"github.com/skep-operator/skep/runtime/graph/render"
	samplehive "github.com/skep-operator/skep/runtime/graph/testdata/sample/hive"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/testdata/benchcells"
)

// all is everything that can be written of a graph.
func all(t *testing.T, g *graph.Graph) string {
	t.Helper()
	var b bytes.Buffer
	for _, write := range []func(io.Writer) error{
		g.WriteJSON, written(render.WriteText, g), written(render.WriteOrder, g), written(render.WriteTimeline, g), written(render.WriteHealth, g),
		func(w io.Writer) error { return render.WriteAnswer(w, query.Everything(g)) },
		func(w io.Writer) error { return render.WriteCells(w, g, false) },
		func(w io.Writer) error { return render.WriteCells(w, g, true) },
		func(w io.Writer) error { return render.WriteDot(w, g, render.Options{}) },
		func(w io.Writer) error { return render.WriteDot(w, g, render.Options{Full: true}) },
		func(w io.Writer) error { return render.WriteMermaid(w, g, render.Options{}) },
		func(w io.Writer) error { return render.WriteMermaid(w, g, render.Options{Full: true}) },
	} {
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestSameBytes(t *testing.T) {
	want := all(t, live(t))
	for range 10 {
		if got := all(t, live(t)); got != want {
			t.Fatal("the same graph is written differently:\n" + firstDifference(got, want))
		}
	}
}

func TestJSONRoundTrip(t *testing.T) {
	g := live(t)
	var b bytes.Buffer
	if err := g.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	back, err := graph.Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := all(t, back), all(t, g); got != want {
		t.Error("a graph that was read is not the one that was written:\n" + firstDifference(got, want))
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                    "unexpected EOF",
		`{"nodes":[{"id":1}]}`: "node 1 stands in place 0",
		`{"nodes":[{"id":0,"needs":[{"type":"a.B","from":[3]}]}]}`:                     "takes a.B from node 3",
		`{"modules":[{"id":"a","parent":"b"}]}`:                                        "module a is nested in b",
		`{"modules":[{"id":"a.b","parent":"a"}]}`:                                      "module a.b is nested in a",
		`{"orders":[{"steps":[{"id":"a.hook-b","module":"a","after":[{"step":0}]}]}]}`: "step a.hook-b comes after step 0",
	} {
		if _, err := graph.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read(%s) = %v, want an error with %q", text, err, want)
		}
	}
}

func TestWhyNamesTheNearest(t *testing.T) {
	g := take(t)
	for word, want := range map[string]string{
		"kvstor":            "cell kvstore or flag --kvstore",
		"ipam.cluster-pool": "cell ipam.clusterpool",
		"k8s.Clinet":        "type *k8s.Client",
		"--cluster-nme":     "flag --cluster-name",
		"Elektor":           "type *election.Elector",
		"something else":    "the cells command lists them",
		"":                  "the cells command lists them",
	} {
		if _, err := query.Why(g, word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Why(%q) = %v, want an error with %q", word, err, want)
		}
	}
}

func TestWhyFollowsWhatBreaks(t *testing.T) {
	answer, err := query.Why(take(t), "k8s")
	if err != nil {
		t.Fatal(err)
	}
	breaks := answer.Cells[0].Breaks
	i := slices.IndexFunc(breaks, func(d query.Dependent) bool { return d.Cell == "status" })
	if i < 0 || breaks[i].Of != "leader" {
		t.Errorf("status, which needs a route of leader, which needs k8s, is missing in %v", breaks)
	}
	if slices.ContainsFunc(breaks, func(d query.Dependent) bool { return d.Cell == "heartbeat" || d.Cell == "cluster" }) {
		t.Errorf("a cell that is off, or needs nothing, breaks: %v", breaks)
	}
}

func TestTypesThatReadAlike(t *testing.T) {
	g := hive.New("operator", cell.Module("a", "Has a type that reads like one of the hive",
		cell.Provide(func() samplehive.Config { return samplehive.Config{} }),
		cell.Invoke(func(samplehive.Config, hive.Config) {}),
	), hive.Environ(nil)).Graph()
	names := map[string]bool{}
	for _, typ := range g.Types {
		if names[typ.Name] {
			t.Errorf("two types are called %s", typ.Name)
		}
		names[typ.Name] = true
	}
	for _, full := range []string{"github.com/skep-operator/skep/runtime/hive.Config", "github.com/skep-operator/skep/runtime/graph/testdata/sample/hive.Config"} {
		answer, err := query.Why(g, full)
		if err != nil || len(answer.Types) != 1 || answer.Types[0].Name != full {
			t.Errorf("Why(%q) = %v, %v", full, answer, err)
		}
	}
}

func TestLinksPointOnceTheWayOfStarting(t *testing.T) {
	links := query.Links(take(t))
	seen := map[string]bool{}
	for _, l := range links {
		ends := l.From + " " + l.To + l.Enters
		if seen[ends] || l.From == l.To {
			t.Errorf("link %s is there twice, or to itself", ends)
		}
		seen[ends] = true
	}
	for _, want := range []query.Link{
		{From: "ipam", To: "ipam.clusterpool", Types: []string{"*stream.Resource[stream.CiliumNode]"}},
		{From: "kvstore", To: "identity", Types: []string{"*kvstore.Client"}, Optional: true, Off: true},
		{From: "leader", Enters: "leader"},
	} {
		if !slices.ContainsFunc(links, func(l query.Link) bool { return reflect.DeepEqual(l, want) }) {
			t.Errorf("no link %+v in %+v", want, links)
		}
	}
}

// TestFanIsMarked checks that what many cells share is a word in their boxes
// and not a line to each, and that every value is shown one way or the other.
func TestFanIsMarked(t *testing.T) {
	g := take(t)
	var b strings.Builder
	if err := render.WriteDot(&b, g, render.Options{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), `"k8s" -> `) {
		t.Error("k8s, which nine cells need, has lines")
	}
	if n := strings.Count(b.String(), "← *k8s.Client<"); n != 9 {
		t.Errorf("%d boxes say that they need *k8s.Client, want 9", n)
	}
	for _, l := range query.Links(g) {
		for _, typ := range l.Types {
			line := fmt.Sprintf("%q -> %q", l.From, l.To)
			if typ != "*k8s.Client" && !strings.Contains(b.String(), line) {
				t.Errorf("no line %s for %s", line, typ)
			}
		}
	}
}

// TestChainIsFolded checks that a chain of 150 cells stands in rows.
func TestChainIsFolded(t *testing.T) {
	h := hive.New("operator", benchcells.Set(150), hive.Environ(nil))
	if err := h.Select(); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := render.WriteDot(&b, h.Graph(), render.Options{}); err != nil {
		t.Fatal(err)
	}
	columns, rows := strings.Count(b.String(), "rank=same"), strings.Count(b.String(), "subgraph cluster_0_")
	if columns < 6 || columns > 10 || rows != (150+columns-1)/columns {
		t.Errorf("the chain is drawn in %d rows of %d boxes", rows, columns)
	}
}

// TestFramesAreFolded checks that a cell stands in the row of the one that it
// is nested in.
func TestFramesAreFolded(t *testing.T) {
	g := &graph.Graph{}
	for i := range 60 {
		outer := fmt.Sprintf("m%d", i)
		n := graph.Node{ID: i, Kind: graph.KindConstructor, Name: "new", Module: outer, Reached: true, Provides: []string{fmt.Sprintf("a.T%d", i)}}
		if i > 0 {
			n.Needs = []graph.Need{{Type: fmt.Sprintf("a.T%d", i-1), From: []int{i - 1}}}
		}
		g.Modules = append(g.Modules, graph.Module{ID: outer, Enabled: true}, graph.Module{ID: outer + ".inner", Parent: outer, Enabled: true})
		g.Nodes = append(g.Nodes, n)
	}
	var b strings.Builder
	if err := render.WriteDot(&b, g, render.Options{}); err != nil {
		t.Fatal(err)
	}
	columns, rows := strings.Count(b.String(), "rank=same"), strings.Split(b.String(), "subgraph cluster_0_")[1:]
	if len(rows) != (60+columns-1)/columns {
		t.Errorf("60 frames are drawn in %d rows of %d columns", len(rows), columns)
	}
	for _, row := range rows {
		if boxes := strings.Count(row, `class="cell on"`); boxes > 2*columns {
			t.Errorf("%d boxes are in a row of %d columns", boxes, columns)
		}
	}
}

// TestAnyGraphIsDrawn draws graphs that no hive would make: with cycles
// between cells, values without a provider, and nothing in them.
func TestAnyGraphIsDrawn(t *testing.T) {
	all(t, &graph.Graph{})
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		g := &graph.Graph{Name: `"odd" <name>`}
		for i := range 1 + random.IntN(30) {
			m := graph.Module{ID: fmt.Sprintf("m%d", i), Term: []string{"", "leader"}[random.IntN(2)], Enabled: random.IntN(4) > 0}
			if parent := random.IntN(i + 1); parent < i && random.IntN(2) == 0 {
				m.Parent, m.Term = g.Modules[parent].ID, g.Modules[parent].Term
				m.ID = m.Parent + "." + m.ID
			}
			g.Modules = append(g.Modules, m)
		}
		count := 1 + random.IntN(60)
		for i := range count {
			m := g.Modules[random.IntN(len(g.Modules))]
			n := graph.Node{ID: i, Kind: graph.KindConstructor, Name: "new", Module: m.ID, Term: m.Term, Reached: m.Enabled, Provides: []string{fmt.Sprintf("a.T%d", i)}}
			for range random.IntN(4) {
				from := random.IntN(count)
				n.Needs = append(n.Needs, graph.Need{Type: fmt.Sprintf("a.T%d", from), From: []int{from}, Optional: random.IntN(3) == 0})
			}
			g.Nodes = append(g.Nodes, n)
		}
		if once, again := all(t, g), all(t, g); once != again {
			t.Fatal("the same graph is drawn differently")
		}
	}
}

func TestTimelineFindsWhatTheEndWaitedFor(t *testing.T) {
	o := graph.Order{Steps: []graph.Step{
		{ID: "a", StartNanos: 5},
		{ID: "b", StartNanos: 9},
		{ID: "c", StartNanos: 2, After: []graph.After{{Step: 0}}},
		{ID: "d", StartNanos: 1, After: []graph.After{{Step: 1}, {Step: 2}}},
	}}
	want := []graph.Span{{Begin: 0, End: 5}, {Begin: 0, End: 9, Critical: true}, {Begin: 5, End: 7}, {Begin: 9, End: 10, Critical: true}}
	if got := o.Timeline(); !slices.Equal(got, want) {
		t.Errorf("Timeline() = %v, want %v", got, want)
	}
	if got := (&graph.Order{Steps: []graph.Step{{ID: "a"}}}).Timeline(); got != nil {
		t.Errorf("Timeline() of what has not started = %v", got)
	}
}

func TestMistakesHaveNoOrder(t *testing.T) {
	h := hive.New("operator", cell.Set(
		cell.Module("a", "A", cell.StartAfter("b", "one"), cell.Hook("x", func() lifecycle.Hook { return nil })),
		cell.Module("b", "B", cell.StartAfter("a", "two"), cell.Hook("x", func() lifecycle.Hook { return nil })),
	), hive.Environ(nil))
	if err := h.Select(); err == nil {
		t.Fatal("a circle of order is accepted")
	}
	if text := all(t, h.Graph()); !strings.Contains(text, "no start order: the graph has mistakes") {
		t.Error("the order of a graph with mistakes is written")
	}
}
