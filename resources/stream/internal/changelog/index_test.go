// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package changelog

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/stream/internal/conditions"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// tagged is an object with keys, in any order, of which some may be there several times.
type tagged struct {
	slim.Meta `json:"metadata"`
	tags      []string
}

var byTag = NewIndex("tag", func(g *tagged, add func(string)) {
	for _, tag := range g.tags {
		add(tag)
	}
})

// tags is a list of objects with an index.
type tags struct {
	log  *Log[*tagged]
	uses *Indexes[*tagged]
	rv   slim.Revision
}

func newTags() *tags {
	l := New[*tagged](conditions.New(slog.New(slog.DiscardHandler), nil))
	g := &tags{log: l, uses: l.Indexes()}
	Keys(g.uses, byTag) // builds it
	return g
}

func (g *tags) put(name string, keys []string) {
	g.rv++
	obj := &tagged{tags: keys}
	obj.Name, obj.ResourceVersion = name, g.rv
	g.log.Lock()
	defer g.log.Unlock()
	g.log.Upsert(obj)
}

func (g *tags) remove(name string) {
	g.rv++
	g.log.Lock()
	defer g.log.Unlock()
	g.log.Remove(key1(name), g.rv)
}

// An index finds what has a key, whether objects have few keys or many, in whatever order they have them, and however often.
func TestIndexFindsWhatHasAKey(t *testing.T) {
	rounds := 300
	if seedtest.Soak() {
		rounds = 30_000
	}
	rng := rand.New(rand.NewPCG(seedtest.Seed(t), 1))
	sizes := []int{0, 1, 2, 5, manyKeys - 1, manyKeys, manyKeys + 1, 3 * manyKeys}
	for range rounds {
		g, want := newTags(), map[string][]string{}
		for range 12 {
			name := modelKeys[rng.IntN(len(modelKeys))]
			if rng.IntN(4) == 0 {
				g.remove(name)
				delete(want, name)
			} else {
				keys := drawKeys(rng, sizes[rng.IntN(len(sizes))], want[name])
				g.put(name, keys)
				want[name] = keys
			}
			g.check(t, want)
		}
	}
}

// drawKeys are so many keys with some of them twice; or those that there were, in another order.
func drawKeys(rng *rand.Rand, n int, before []string) (keys []string) {
	if rng.IntN(4) == 0 {
		keys = slices.Clone(before)
	} else {
		first := rng.IntN(manyKeys)
		for i := range n {
			keys = append(keys, fmt.Sprint(first+i))
		}
		keys = append(keys, keys[:rng.IntN(len(keys)+1)]...)
	}
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

// check compares the index with what there is to be.
func (g *tags) check(t *testing.T, want map[string][]string) {
	t.Helper()
	having := map[string]map[string]bool{}
	for name, keys := range want {
		for _, k := range keys {
			if having[k] == nil {
				having[k] = map[string]bool{}
			}
			having[k][name] = true
		}
	}
	if got := Keys(g.uses, byTag); len(got) != len(having) {
		t.Fatalf("it has %d keys, want %d", len(got), len(having))
	}
	for k, names := range having {
		var got []string
		for _, obj := range Lookup(g.uses, byTag, k) {
			got = append(got, obj.Name)
		}
		slices.Sort(got)
		if all := slices.Sorted(maps.Keys(names)); !slices.Equal(got, all) || Count(g.uses, byTag, k) != len(all) {
			t.Fatalf("%s has %q, want %q", k, got, all)
		}
	}
}

// K3 and K7 of the contract's tenants.md: an object with 30,000 keys, such as an Ingress with as many paths, does not hold the lock of its
// list for seconds at each change. A search among all keys for each of them is 450,000,000 comparisons for each state.
func TestAnObjectWithManyKeysDoesNotHoldUpItsList(t *testing.T) {
	var keys []string
	for i := range 30_000 {
		keys = append(keys, fmt.Sprintf("bb/service-%05d", i))
	}
	g := newTags()
	began := time.Now()
	g.put("bb", keys)
	g.put("bb", keys)     // its status
	g.put("bb", keys[1:]) // a path goes
	g.put("bb", append(keys[2:], "bb/other"))
	g.put("bb", nil)
	g.put("bb", keys)
	g.remove("bb")
	if d := time.Since(began); d > 3*time.Second { // it needs less than a tenth of one
		t.Errorf("seven changes of an object with many keys need %s", d)
	}
	if n := len(Keys(g.uses, byTag)); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// The keys of ordinary objects cost no memory when they do not change.
func TestAnUpdateOfFewKeysAllocatesNothing(t *testing.T) {
	g := newTags()
	same, other := &tagged{tags: []string{"a", "b", "c", "d"}}, &tagged{tags: []string{"d", "c", "b", "a"}}
	of := &node[*tagged]{obj: same}
	index := g.log.indexes[byTag].indexed
	index.add(of)
	for name, old := range map[string]*tagged{"the same": same, "in another order": other} {
		if n := testing.AllocsPerRun(100, func() { index.move(of, old) }); n > 0 && !seedtest.RaceEnabled {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
