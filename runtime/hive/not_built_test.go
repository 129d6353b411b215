// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/graph/query"
	"github.com/skep-operator/skep/runtime/graph/render"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// A duty that is not built is named at the start, by validate, cells and why as soon as it is asked for, and until a
// module of its id is in the list.
func TestDutiesThatAreNotBuilt(t *testing.T) {
	list := cell.Set(
		cell.Module("shared", "Owns options", cell.Config(sharedConfig{})),
		cell.Module("todo", "Knows what is missing",
			cell.NotBuilt("slices", "Makes slices", cell.When("slices are made", []string{"enable-slices"}, func(c sharedConfig) bool { return c.EnableSlices })),
			cell.NotBuilt("other", "Does something else", cell.When("it is asked for", []string{"enable-other", "a-key"}, func(v *config.Values) bool {
				e, _ := v.Lookup("enable-other")
				return e.Value == "true"
			}))))
	const warning = "not built yet, and asked for: slices (enable-slices)"
	log := &logtest.Buffer{}
	h := configured(t, hive.New("test", list, hive.LogTo(log), noEnvironment), "--enable-slices")
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{warning}, h.Warnings()); diff != "" {
		t.Error(diff)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), warning); n != 1 {
		t.Errorf("%d times in the log:\n%s", n, log)
	}
	var text bytes.Buffer
	if err := render.WriteCells(&text, h.Graph(), false); err != nil || !strings.Contains(text.String(), "slices  -     not built  Makes slices; asked for by enable-slices\n") ||
		strings.Contains(text.String(), "Does something else") {
		t.Errorf("%v\n%s", err, text.String())
	}
	text.Reset()
	answer, err := query.Why(h.Graph(), "other")
	if err == nil {
		err = render.WriteAnswer(&text, answer)
	}
	if want := "other is not built yet: Does something else\n  asked for  no, it would be if: it is asked for (enable-other, a-key)\n"; err != nil || text.String() != want {
		t.Errorf("%v\n%s", err, text.String())
	}

	built := list.With(cell.Module("slices", "Makes slices"))
	if w := configured(t, newHive(built), "--enable-slices").Warnings(); len(w) > 0 {
		t.Errorf("built: %v", w)
	}
}
