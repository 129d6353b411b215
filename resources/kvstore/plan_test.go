// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import "testing"

const ourLease, otherLease LeaseID = 7, 8

func ours(id LeaseID) bool { return id == ourLease }

// Rules S1, S3, S4 and S5: what is done about a name.
func TestPlan(t *testing.T) {
	t.Parallel()
	want := func(tab *table) { tab.desired["n"] = []byte("v") }
	seen := func(value string, lease LeaseID) func(*table) {
		return func(tab *table) { tab.seen["n"] = sighting{[]byte(value), lease, 5} }
	}
	wrote := func(tab *table) { tab.wrote["n"] = struct{}{} }
	doubtful := func(tab *table) { tab.doubtful["n"] = struct{}{} }
	listed := func(tab *table) { tab.listed = true }
	complete := func(tab *table) { tab.complete = true }
	owned := func(tab *table) { tab.owns = func(name string) bool { return name == "n" } }
	for what, c := range map[string]struct {
		state []func(*table)
		want  step
	}{
		"not listed, wanted":                    {[]func(*table){want}, nothing},
		"not listed, unwanted":                  {[]func(*table){seen("v", ourLease), wrote, complete, owned}, nothing},
		"missing":                               {[]func(*table){listed, want}, put},
		"right":                                 {[]func(*table){listed, want, seen("v", ourLease)}, nothing},
		"another value":                         {[]func(*table){listed, want, seen("w", ourLease)}, put},
		"another's lease":                       {[]func(*table){listed, want, seen("v", otherLease)}, put},
		"no lease":                              {[]func(*table){listed, want, seen("v", 0)}, put},
		"unwanted, ours":                        {[]func(*table){listed, seen("v", ourLease), wrote}, remove},
		"unwanted, left by another, incomplete": {[]func(*table){listed, seen("v", otherLease), owned}, nothing},
		"unwanted, left by another":             {[]func(*table){listed, seen("v", otherLease), owned, complete}, remove},
		"unwanted, of another, in a shared store":                   {[]func(*table){listed, seen("v", otherLease), complete}, nothing},
		"unwanted, a put of ours that came late, in a shared store": {[]func(*table){listed, seen("v", ourLease), doubtful}, remove},
		"unwanted, of another after a put of ours in doubt":         {[]func(*table){listed, seen("v", otherLease), doubtful}, nothing},
		"unwanted and gone": {[]func(*table){listed, wrote, owned, complete}, nothing},
	} {
		tab := newTable(nil)
		for _, apply := range c.state {
			apply(tab)
		}
		if got := tab.plan("n", ours); got != c.want {
			t.Errorf("%s: step %d, want %d", what, got, c.want)
		}
	}
}

// What is heard late does not replace what is known.
func TestTableTakesTheNewest(t *testing.T) {
	t.Parallel()
	tab := newTable(nil)
	tab.desired["n"], tab.listed = []byte("v"), true
	tab.upserted("n", sighting{[]byte("v"), ourLease, 10})
	tab.upserted("n", sighting{[]byte("old"), otherLease, 9})
	tab.deleted("n", 9)
	if got := tab.plan("n", ours); got != nothing {
		t.Errorf("after old news: step %d", got)
	}
	tab.deleted("n", 11)
	tab.upserted("n", sighting{[]byte("v"), ourLease, 10}) // the answer to our write comes after its end
	if got := tab.plan("n", ours); got != put || tab.newest("n") != 11 {
		t.Errorf("after the delete: step %d, newest %d", got, tab.newest("n"))
	}
	tab.replaced() // revisions begin anew
	tab.upserted("n", sighting{[]byte("v"), ourLease, 2})
	if got := tab.plan("n", ours); got != nothing || tab.newest("n") != 2 {
		t.Errorf("in other data: step %d, newest %d", got, tab.newest("n"))
	}
	delete(tab.desired, "n")
	tab.wrote["n"], tab.doubtful["n"] = struct{}{}, struct{}{}
	tab.deleted("n", 3)
	tab.forget("n")
	if len(tab.seen)+len(tab.gone)+len(tab.wrote) != 0 {
		t.Errorf("something of a name is left: %+v", tab)
	}
	if len(tab.doubtful) != 1 {
		t.Error("a put that may yet be done is forgotten")
	}
}
