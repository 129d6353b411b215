// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// SEC-22: a name that a configuration has, and cannot mean its object by, is free for others, and keeps no copy. One that had an owner goes to no other object.
func TestPinsThatDoNotCount(t *testing.T) {
	now := time.Unix(1000, 0)
	n := NewNames()
	n.now = func() time.Time { return now }
	n.LimitPins(func(by, _ string, of Object) bool { return of.Namespace == by })
	had, free, near := object("team", "prod-tls"), object("team", "free"), object("team-prod", "tls")
	for _, name := range []string{had.CopyName(), free.CopyName(), hiddenName(free, 0)} {
		n.Pin("copies", name, "other")
	}
	n.Exists("copies", had.CopyName(), had)
	n.Exists("copies", "copy", had)
	n.MarkKnown()
	if n.IsNamed("copies", had.CopyName()) || n.IsNamed("copies", free.CopyName()) {
		t.Error("they count")
	}
	if got := n.Of("copies", free); got != free.CopyName() || !n.Plain("copies", free) {
		t.Errorf("what has no copy gets %s", got)
	}
	if got := n.Kept("copies", had); got != had.CopyName() {
		t.Errorf("what has copies keeps %s", got)
	}
	n.Release(had)
	now = now.Add(2 * reuse)
	n.Release(object("a", "b"))
	if n.Plain("copies", near) || !n.Plain("copies", had) {
		t.Error("a name in a configuration goes to another object than the one that had it")
	}
	n.Pin("copies", had.CopyName(), "team")
	if !n.IsNamed("copies", had.CopyName()) {
		t.Error("one of its namespace does not count")
	}
	n.Unpin("copies", had.CopyName(), "other")
	if !n.IsNamed("copies", had.CopyName()) || n.IsNamed("copies", "none") {
		t.Error("one of its namespace does not count any more")
	}
	n.Unpin("copies", had.CopyName(), "team")
	n.Release(had)
	now = now.Add(2 * reuse)
	if !n.Plain("copies", near) {
		t.Error("a name that no configuration has is not given")
	}
	if all := slices.Collect(NamespacesOf("a-b--c")); !slices.Equal(all, []string{"a", "a-b", "a-b-"}) {
		t.Errorf("%q", all)
	}
	for name, want := range map[string]bool{"team-free": true, hashedName(free, 0): true, hashedName(near, 0): false, "team-free-1": false, "team": false} {
		if free.MayHave(name) != want {
			t.Errorf("%s may have %s: %t", free, name, !want)
		}
	}
}

// SEC-22: a configuration that has too many names means what it has the names of, as others do, and keeps no other name from anything.
func TestRestOfPins(t *testing.T) {
	n := NewNames()
	now := time.Unix(1000, 0)
	n.now = func() time.Time { return now }
	n.LimitPins(func(by, name string, of Object) bool {
		return of.Namespace == by || of == (Object{}) && strings.HasPrefix(name, by+"-")
	})
	own, beside, free := object("team", "tls"), object("team-prod", "tls"), object("team-prod", "free")
	n.Exists("copies", own.CopyName(), own)
	n.Exists("copies", "x", own)
	n.Exists("copies", "z", own)
	n.Exists("copies", "y", beside)
	has := func(names ...string) func(string) bool {
		return func(name string) bool { return slices.Contains(names, name) }
	}
	all := []string{"x", "y", "team-tls", "team-prod-tls", "team-z", "tea-z"}
	unpins := []func(){
		n.PinRest("copies", "team", nil, has(all...)), n.PinRest("copies", "team", slices.Values(all[:3]), nil), n.PinRest("copies", "team", slices.Values(all), nil),
		n.PinRest("copies", "other", nil, has("team-prod-free", "z")), n.PinRest("elsewhere", "team", slices.Values([]string{"team-prod-free", "team-w"}), nil),
	}
	unpins[0]()
	unpins[1]()
	n.MarkKnown()
	for name, want := range map[string]bool{own.CopyName(): true, "x": true, "z": false, "y": false, "team-z": true, "team-other": false, "team-w": false, "tea-z": false, "team": false} {
		if n.IsNamed("copies", name) != want {
			t.Errorf("%s is named: %t", name, !want)
		}
	}
	if !n.IsNamed("elsewhere", "team-w") || n.Plain("copies", beside) || !n.Plain("copies", object("team", "prod-tls")) {
		t.Error("a name is given that a configuration may have for another object")
	}
	if !n.Plain("copies", free) || !n.Plain("copies", object("team-prod", "other")) || !n.Plain("copies", object("team", "new")) {
		t.Error("a name is not given that no configuration has which may mean it")
	}
	n.Release(own)
	now = now.Add(2 * reuse)
	n.Release(object("a", "b"))
	if of, _ := n.LastOwner("copies", own.CopyName()); of != own {
		t.Errorf("what a configuration has is that of %s", of)
	}
	if of, _ := n.LastOwner("copies", "z"); of == own {
		t.Error("what none has is still of its last owner")
	}
	for _, unpin := range unpins[2:] {
		unpin()
	}
	n.Release(object("team", "prod-tls"))
	now = now.Add(2 * reuse)
	if n.IsNamed("copies", "x") || !n.Plain("copies", beside) || len(n.rests) > 0 {
		t.Error("it counts that is gone")
	}
}
