// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lockgc

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/seedtest"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/kvstore"
)

const locks = "cilium/state/identities/v1/locks/"

func entry(name string, revision int64) kvstore.Entry {
	return kvstore.Entry{Key: locks + name, ModRevision: revision, Lease: 7}
}

func names(entries []kvstore.Entry) []string {
	all := []string{}
	for _, e := range entries {
		all = append(all, e.Key[len(locks):])
	}
	return all
}

func kept(h holders) []string {
	return names(slices.SortedFunc(maps.Values(h), func(a, b kvstore.Entry) int { return int(a.ModRevision - b.ModRevision) }))
}

// LOCK-4; LOCK-E9.
func TestHolders(t *testing.T) {
	listed := []kvstore.Entry{
		entry("foo/bar/3", 3), entry("foo/bar/1", 1), entry("foo/bar/2", 2), entry("foo/bar/4", 4), entry("foo/bar/5", 5),
		entry("foo/baz/6", 6), entry("foo/bbz/7", 7), entry("without", 8), entry("k8s:a//b=..;/9", 9),
	}
	want := []string{"foo/bar/1", "foo/baz/6", "foo/bbz/7", "without", "k8s:a//b=..;/9"}
	if got := kept(holdersOf(listed, nil)); !slices.Equal(got, want) {
		t.Errorf("holders are %v, want %v", got, want)
	}
}

// run is one run over what is listed: what is removed, and who is remembered.
func run(seen holders, listed ...kvstore.Entry) (removed []string, next holders) {
	stuck, _ := split(seen, listed)
	gone := map[string]bool{}
	for _, e := range stuck {
		gone[e.Key] = true
	}
	return names(stuck), holdersOf(listed, gone)
}

// LOCK-5 and LOCK-6; LOCK-E10 to LOCK-E12.
func TestRuns(t *testing.T) {
	a, b := entry("p/a", 10), entry("p/b", 11)
	again := entry("p/a", 12)
	other := a
	other.Lease = 8
	for name, runs := range map[string][]struct {
		listed  []kvstore.Entry
		removed []string
		kept    []string
	}{
		"10: unchanged": {
			{[]kvstore.Entry{a}, nil, []string{"p/a"}},
			{[]kvstore.Entry{a}, []string{"p/a"}, nil},
		},
		"11: taken again": {
			{[]kvstore.Entry{a}, nil, []string{"p/a"}},
			{[]kvstore.Entry{again}, nil, []string{"p/a"}},
			{[]kvstore.Entry{again}, []string{"p/a"}, nil},
		},
		"another lease": {
			{[]kvstore.Entry{a}, nil, []string{"p/a"}},
			{[]kvstore.Entry{other}, nil, []string{"p/a"}},
		},
		"12: one waits": {
			{[]kvstore.Entry{a, b}, nil, []string{"p/a"}},
			{[]kvstore.Entry{a, b}, []string{"p/a"}, []string{"p/b"}},
			{[]kvstore.Entry{b}, []string{"p/b"}, nil},
		},
		"the holder is done, and who waited has its old revision": {
			{[]kvstore.Entry{a, b}, nil, []string{"p/a"}},
			{[]kvstore.Entry{b}, nil, []string{"p/b"}},
			{[]kvstore.Entry{b}, []string{"p/b"}, nil},
		},
		"gone in between": {
			{[]kvstore.Entry{a}, nil, []string{"p/a"}},
			{nil, nil, nil},
			{[]kvstore.Entry{a}, nil, []string{"p/a"}},
		},
	} {
		var seen holders
		for i, r := range runs {
			removed, next := run(seen, r.listed...)
			if !slices.Equal(removed, r.removed) || !slices.Equal(kept(next), r.kept) {
				t.Errorf("%s, run %d: removed %v and kept %v, want %v and %v", name, i+1, removed, kept(next), r.removed, r.kept)
			}
			seen = next
		}
	}
}

// LOCK-8: of new locks only the holders are asked about.
func TestFresh(t *testing.T) {
	a, b, c := entry("p/a", 10), entry("p/b", 11), entry("q/c", 12)
	stuck, fresh := split(holdersOf([]kvstore.Entry{a, b}, nil), []kvstore.Entry{a, b, c})
	if !slices.Equal(names(stuck), []string{"p/a"}) || !slices.Equal(names(fresh), []string{"q/c"}) {
		t.Errorf("stuck are %v, new are %v", names(stuck), names(fresh))
	}
}

// Whatever happens to locks, only who held one at two runs in a row, without a
// change, loses it, and who waits loses nothing.
func TestOnlyTheStuckAreRemoved(t *testing.T) {
	seed := seedtest.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	now := map[string]kvstore.Entry{}
	var before, seen holders
	revision := int64(0)
	for range 5000 {
		for range random.IntN(6) {
			key := "p" + strconv.Itoa(random.IntN(3)) + "/" + strconv.Itoa(random.IntN(3))
			if random.IntN(2) == 0 {
				delete(now, key)
			} else if _, held := now[key]; !held {
				revision++
				now[key] = entry(key, revision)
			}
		}
		listed := slices.Collect(maps.Values(now))
		holding := holdersOf(listed, nil)
		stuck, _ := split(seen, listed)
		gone := map[string]bool{}
		for _, e := range stuck {
			path := pathOf(e.Key)
			if !same(before[path], e) || !same(holding[path], e) {
				t.Fatalf("seed %d: %s at %d is removed; before there was %v, now %v", seed, e.Key, e.ModRevision, before[path], holding[path])
			}
			gone[e.Key] = true
			delete(now, e.Key[len(locks):])
		}
		seen = holdersOf(listed, gone)
		before = holdersOf(slices.Collect(maps.Values(now)), nil)
	}
}

func TestConfig(t *testing.T) {
	for d, ok := range map[time.Duration]bool{0: false, time.Second: false, 25 * time.Second: true, time.Hour: true} {
		if err := cell.ValidateConfig(Config{KVStoreLockGCInterval: d}); (err == nil) != ok {
			t.Errorf("%s: %v", d, err)
		}
	}
}
