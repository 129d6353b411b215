// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package changelog

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/stream/internal/conditions"
	"github.com/skep-operator/skep/resources/stream/slim"
)

type gear struct {
	slim.Meta `json:"metadata"`
}

// told is the health of a stream.
type told struct{ text string }

func (h *told) OK(string) { h.text = "" }

func (h *told) Degraded(message string, err error) { h.text = fmt.Sprint(message, ": ", err) }

// K8S-19: an object for which the key function of an index panics is not found by it, and is named with the line; the others are found.
func TestAnObjectForWhichAKeyFunctionPanics(t *testing.T) {
	health := &told{}
	set := conditions.New(slog.New(slog.DiscardHandler), health)
	set.SetOK("synced")
	l := New[*gear](set)
	change := func(do func()) {
		l.Lock()
		defer l.Unlock()
		do()
	}
	put := func(name, version string) {
		g := &gear{}
		g.Name, g.Namespace = name, slim.MakeString("bb")
		g.ResourceVersion, _ = slim.ParseRevision(version)
		l.Upsert(g)
	}
	change(func() { put("a", "1"); put("bad", "2"); put("c", "3") })
	index := NewIndex("name", func(g *gear, add func(string)) {
		if g.Name == "bad" && g.ResourceVersion != 9 {
			panic("oops")
		}
		add(g.Name)
	})
	u := l.Indexes()
	defer u.Release()
	found := func(name string) int { return len(Lookup(u, index, name)) }
	if found("a") != 1 || found("bad") != 0 || found("c") != 1 {
		t.Errorf("found: %d, %d, %d", found("a"), found("bad"), found("c"))
	}
	if want := "bb/bad is not found by it, its key function panicked: panic: oops (resources/stream/internal/changelog/panic_test.go:"; !strings.Contains(health.text, want) {
		t.Errorf("health says %q", health.text)
	}
	change(func() { put("a", "4"); put("bad", "9") })
	if found("bad") != 1 || health.text != "" {
		t.Errorf("afterwards it is found %d times, and health says %q", found("bad"), health.text)
	}
	change(func() { put("bad", "10") })
	if health.text == "" {
		t.Error("health is good while the key function panics")
	}
	change(func() { l.Remove(slim.Key{Namespace: "bb", Name: "bad"}, 11) })
	if health.text != "" {
		t.Errorf("when it is gone health says %q", health.text)
	}
}
