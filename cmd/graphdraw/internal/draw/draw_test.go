// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package draw_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cmd/graphdraw/internal/draw"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/render"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/testdata/benchcells"
)

// sample is a graph that the tests of package graph keep.
func sample(t *testing.T, file string) *graph.Graph {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "..", "runtime", "graph", "testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := graph.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func long(t *testing.T) *graph.Graph {
	t.Helper()
	h := hive.New("operator", benchcells.Set(150), hive.Environ(nil))
	if err := h.Select(); err != nil {
		t.Fatal(err)
	}
	return h.Graph()
}

func svg(t *testing.T, g *graph.Graph, show render.Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := draw.SVG(t.Context(), &b, g, show); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// attributes are the values of an attribute in an SVG, which has to be
// well-formed.
func attributes(t *testing.T, svg, name string) []string {
	t.Helper()
	var values []string
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return values
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if start, ok := token.(xml.StartElement); ok {
			for _, a := range start.Attr {
				if a.Name.Local == name {
					values = append(values, a.Value)
				}
			}
		}
	}
}

func TestEveryCellAndLineIsDrawn(t *testing.T) {
	for name, g := range map[string]*graph.Graph{"operator": sample(t, "operator.json"), "live": sample(t, "live.json"), "long": long(t)} {
		ids := attributes(t, svg(t, g, render.Options{}), "id")
		for _, id := range g.ModuleIDs() {
			if !slices.Contains(ids, "cell-"+id) {
				t.Errorf("%s: cell %s is not drawn", name, id)
			}
		}
		lines := 0
		for _, id := range ids {
			if strings.HasPrefix(id, "link-") {
				lines++
			}
		}
		var dot strings.Builder
		if err := render.WriteDot(&dot, g, render.Options{}); err != nil {
			t.Fatal(err)
		}
		if want := strings.Count(dot.String(), `id="link-`); lines != want || want == 0 {
			t.Errorf("%s: %d lines are drawn, want %d", name, lines, want)
		}
	}
}

// tops are the highest points of elements, by their ids.
func tops(t *testing.T, svg string) map[string]float64 {
	t.Helper()
	type group struct {
		ID    string `xml:"id,attr"`
		Paths []struct {
			D string `xml:"d,attr"`
		} `xml:"path"`
		Groups []group `xml:"g"`
	}
	var root group
	if err := xml.Unmarshal([]byte(svg), &root); err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, g := range root.Groups[0].Groups {
		if len(g.Paths) == 0 {
			continue
		}
		for i, number := range regexp.MustCompile(`-?[\d.]+`).FindAllString(g.Paths[0].D, -1) {
			if y, err := strconv.ParseFloat(number, 64); err == nil && i%2 == 1 {
				if top, known := found[g.ID]; !known || y < top {
					found[g.ID] = y
				}
			}
		}
	}
	return found
}

// TestReadsFromTheTop checks that the process stands above the terms, whether
// or not lines connect them, and that a folded chain is read like lines of
// text.
func TestReadsFromTheTop(t *testing.T) {
	apart := &graph.Graph{Modules: []graph.Module{
		{ID: "a", Enabled: true}, {ID: "b", Enabled: true}, {ID: "c", Term: "leader", Enabled: true}, {ID: "d", Term: "leader", Enabled: true},
		{ID: "e", Term: "other", Enabled: true},
	}}
	for name, g := range map[string]*graph.Graph{"operator": sample(t, "operator.json"), "live": sample(t, "live.json"), "apart": apart} {
		top := tops(t, svg(t, g, render.Options{}))
		if top["scope-0"] >= top["scope-1"] {
			t.Errorf("%s: the process is below the term", name)
		}
	}
	if top := tops(t, svg(t, apart, render.Options{})); top["scope-1"] >= top["scope-2"] {
		t.Error("the first term is below the second")
	}
	top := tops(t, svg(t, long(t), render.Options{}))
	if len(top) < 150 || top["cell-m0"] >= top["cell-m70"] || top["cell-m70"] >= top["cell-m149"] {
		t.Errorf("the chain begins at %v and ends at %v", top["cell-m0"], top["cell-m149"])
	}
}

func TestEveryNodeIsDrawn(t *testing.T) {
	g := sample(t, "operator.json")
	classes := attributes(t, svg(t, g, render.Options{Full: true}), "class")
	drawn, want := 0, 0
	for _, c := range classes {
		if strings.HasPrefix(c, "node node ") {
			drawn++
		}
	}
	for _, n := range g.Nodes {
		if n.Kind != graph.KindBuiltin && n.For == "" {
			want++
		}
	}
	if drawn != want {
		t.Errorf("%d nodes are drawn, want %d", drawn, want)
	}
}

// TestColoursHaveNames checks that a dark page leaves no colour behind.
func TestColoursHaveNames(t *testing.T) {
	text := svg(t, sample(t, "live.json"), render.Options{})
	known := []string{"none", "transparent"}
	for _, hex := range render.Palette() {
		known = append(known, hex)
	}
	for _, attribute := range []string{"fill", "stroke"} {
		for _, colour := range attributes(t, text, attribute) {
			if !slices.Contains(known, colour) {
				t.Errorf("%s=%q is not in the palette", attribute, colour)
			}
		}
	}
}

func TestSameBytes(t *testing.T) {
	g := sample(t, "live.json")
	page := func() string {
		var b bytes.Buffer
		if err := draw.HTML(t.Context(), &b, g, render.Options{}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	wantSVG, wantPage := svg(t, g, render.Options{}), page()
	for range 3 {
		if svg(t, g, render.Options{}) != wantSVG || page() != wantPage {
			t.Fatal("the same graph is drawn differently")
		}
	}
}

// TestOddWords draws names that mean something in dot, in XML and in HTML.
func TestOddWords(t *testing.T) {
	g := &graph.Graph{
		Name: `a "name" \ <b>`,
		Modules: []graph.Module{
			{ID: "one", Title: `</script><script>window.broken = true</script> & "quotes" – \n é`, Enabled: true},
			{ID: "two", Reason: `two needs that <x> & "y"`},
			{ID: "three"}, {ID: "graph"}, {ID: "node"},
		},
		Nodes: []graph.Node{
			{ID: 0, Kind: graph.KindConstructor, Name: "one.new[...]", Module: "one", Reached: true, Provides: []string{`map[string]*x.T[<-chan "a\b"]`}},
			{ID: 1, Kind: graph.KindHook, Name: `"h"`, Module: "graph", Needs: []graph.Need{{Type: `map[string]*x.T[<-chan "a\b"]`, From: []int{0}}}},
		},
	}
	for _, full := range []bool{false, true} {
		text := svg(t, g, render.Options{Full: full})
		if len(attributes(t, text, "id")) == 0 {
			t.Error("nothing is drawn")
		}
		if strings.Contains(text, "<script") {
			t.Error("a title became an element")
		}
	}
	var page bytes.Buffer
	if err := draw.HTML(t.Context(), &page, g, render.Options{}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "<script"); n != 2 { // the data and the code
		t.Errorf("the page has %d scripts, want 2", n)
	}
}
