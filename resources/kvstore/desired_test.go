// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import "testing"

const ourLease, otherLease LeaseID = 7, 8

func ours(id LeaseID) bool { return id == ourLease }

// KV-S1, KV-S3, KV-S4 and KV-S5: what is done about a name.
func TestNextAction(t *testing.T) {
	t.Parallel()
	want := func(state *syncState) { state.desired["n"] = []byte("v") }
	seen := func(value string, lease LeaseID) func(*syncState) {
		return func(state *syncState) { state.observed["n"] = observedKey{[]byte(value), lease, 5} }
	}
	wrote := func(state *syncState) { state.written["n"] = struct{}{} }
	listed := func(state *syncState) { state.listed = true }
	complete := func(state *syncState) { state.confirmed = true }
	disowned := func(state *syncState) { state.owns = func(string) bool { return false } }
	owned := func(state *syncState) { state.owns = func(name string) bool { return name == "n" } }
	for what, c := range map[string]struct {
		state []func(*syncState)
		want  action
	}{
		"not listed, wanted":                    {[]func(*syncState){want}, noAction},
		"not listed, unwanted":                  {[]func(*syncState){seen("v", ourLease), wrote, complete, owned}, noAction},
		"missing":                               {[]func(*syncState){listed, want}, putKey},
		"right":                                 {[]func(*syncState){listed, want, seen("v", ourLease)}, noAction},
		"another value":                         {[]func(*syncState){listed, want, seen("w", ourLease)}, putKey},
		"another's lease":                       {[]func(*syncState){listed, want, seen("v", otherLease)}, putKey},
		"no lease":                              {[]func(*syncState){listed, want, seen("v", 0)}, putKey},
		"unwanted, ours":                        {[]func(*syncState){listed, seen("v", ourLease), wrote}, deleteKey},
		"unwanted, left by another, incomplete": {[]func(*syncState){listed, seen("v", otherLease), owned}, noAction},
		"unwanted, of another, not owned":       {[]func(*syncState){listed, seen("v", otherLease), disowned, complete}, noAction},
		"unwanted, left by another":             {[]func(*syncState){listed, seen("v", otherLease), owned, complete}, deleteKey},
		"unwanted and gone":                     {[]func(*syncState){listed, wrote, owned, complete}, noAction},
	} {
		state := newSyncState()
		for _, apply := range c.state {
			apply(state)
		}
		if got := state.nextAction("n", ours); got != c.want {
			t.Errorf("%s: action %d, want %d", what, got, c.want)
		}
	}
}

// A late observation does not replace a newer one.
func TestStaleObservationsAreIgnored(t *testing.T) {
	t.Parallel()
	state := newSyncState()
	state.desired["n"], state.listed = []byte("v"), true
	state.observePut("n", observedKey{[]byte("v"), ourLease, 10})
	state.observePut("n", observedKey{[]byte("old"), otherLease, 9})
	state.observeDelete("n", 9)
	if got := state.nextAction("n", ours); got != noAction {
		t.Errorf("after a stale event: action %d", got)
	}
	state.observeDelete("n", 11)
	state.observePut("n", observedKey{[]byte("v"), ourLease, 10}) // the answer to our write comes after its end
	if got := state.nextAction("n", ours); got != putKey || state.lastRevision("n") != 11 {
		t.Errorf("after the delete: action %d, revision %d", got, state.lastRevision("n"))
	}
	state.resetRevisions() // revisions restart
	state.observePut("n", observedKey{[]byte("v"), ourLease, 2})
	if got := state.nextAction("n", ours); got != noAction || state.lastRevision("n") != 2 {
		t.Errorf("after a restore: action %d, revision %d", got, state.lastRevision("n"))
	}
	delete(state.desired, "n")
	state.written["n"] = struct{}{}
	state.observeDelete("n", 3)
	state.prune("n")
	if len(state.observed)+len(state.deletedAt)+len(state.written) != 0 {
		t.Errorf("something of a name is left: %+v", state)
	}
}
