// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/printable"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// hostile adds a hostile text to each text of a value, and returns how many these are.
func hostile(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() && v.String() != "" {
			v.SetString(v.String() + printabletest.Hostile + "\x7f\u009b31m</script>")
			n++
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += hostile(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			n += hostile(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			n += hostile(v.Elem())
		}
	}
	return n
}

// K6 of the contract's tenants.md: whatever texts a graph has, values of options and health among them, a drawing and a page are made of it, and nothing of
// these controls a terminal, or what the browser runs. Texts of ordinary graphs stay as they are.
func TestTextsOfGraphsAreEscaped(t *testing.T) {
	for _, file := range []string{"operator.json", "live.json"} {
		for _, args := range [][]string{{}, {"-full"}, {"-format", "html"}} {
			if out := string(drawn(t, sample(t, file), args...)); printable.Text(out) != out {
				t.Errorf("%s %v: texts are escaped that are ordinary", file, args)
			}
			g := sample(t, file)
			if n := hostileTexts(g); n < 100 {
				t.Fatalf("only %d texts are hostile", n)
			}
			out := string(drawn(t, g, args...))
			printabletest.CheckContains(t, file+" "+strings.Join(args, " "), out)
			if strings.Count(out, "<script") > 2 {
				t.Errorf("%s %v: a text is a script", file, args)
			}
		}
	}
}

// hostileTexts has texts of a graph that may be of others hostile: all but ids, kinds, and what names something else in it.
func hostileTexts(g *graph.Graph) (n int) {
	for i := range g.Modules {
		m := &g.Modules[i]
		n += hostile(reflect.ValueOf(&m.Title)) + hostile(reflect.ValueOf(&m.Reason)) + hostile(reflect.ValueOf(&m.Options))
	}
	for i := range g.Nodes {
		n += hostile(reflect.ValueOf(&g.Nodes[i].Name))
	}
	return n
}

// The page keeps the data that the script reads.
func TestDataOfThePageIsJSON(t *testing.T) {
	g := sample(t, "operator.json")
	hostileTexts(g)
	_, rest, found := bytes.Cut(drawn(t, g, "-format", "html"), []byte(`<script type="application/json" id="data">`))
	text, _, ended := bytes.Cut(rest, []byte("</script>"))
	if !found || !ended || !json.Valid(text) {
		t.Errorf("the data is no JSON: %.300s", text)
	}
}
