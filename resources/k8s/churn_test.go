// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// number sets the data of the object of most tests to a number.
func (c *contest) number(ctx context.Context, n int) error {
	_, _, err := c.Modify(ctx, a, func(u *unstructured.Unstructured) error {
		return unstructured.SetNestedField(u.Object, fmt.Sprint(n), "data", "n")
	})
	return err
}

// K8S-25; K9 of the contract's tenants.md: an object that is to be deleted and created 50 times a second, by an input that flips or by another
// client that creates it, is left as it is for longer and longer, and named; and so is one that has one source and is to be changed as often.
// Others are not.
func TestAnObjectThatFlipsIsWrittenLessAndLessOften(t *testing.T) {
	byDefault := func(ctx context.Context) context.Context { return ctx }
	del := func(as func(context.Context) context.Context) func(t *testing.T, c *contest, i int) (bool, error) {
		return func(t *testing.T, c *contest, _ int) (bool, error) {
			if c.objects["a"] == nil {
				return false, c.create(t, "a")
			}
			uid := (&unstructured.Unstructured{Object: c.objects["a"]}).GetUID()
			err := c.Delete(as(why(t)), a, Preconditions{UID: uid})
			return err == nil, err
		}
	}
	for name, c := range map[string]struct {
		write       func(t *testing.T, c *contest, i int) (counts bool, err error)
		least, most int // writes in a minute; beyond the first ones there are those after 1, 2, 4, 8, and 16 s
	}{
		"own chain": {del(byDefault), mostDeletes + 5, mostDeletes + 7},
		"created by another": {func(t *testing.T, c *contest, i int) (bool, error) {
			if c.objects["a"] == nil {
				other := newConfigMap("n", "a", nil)
				u, _, err := encode(t.Context(), other)
				if err != nil {
					return false, err
				}
				u.SetAPIVersion("v1")
				u.SetKind("ConfigMap")
				c.memory.put(u)
			}
			return del(byDefault)(t, c, i)
		}, mostDeletes + 5, mostDeletes + 7},
		"shared chain": {del(WithManySources), 1000, 3000},
		"changes": {func(t *testing.T, c *contest, i int) (bool, error) {
			err := c.number(WithOneSource(why(t)), i)
			return err == nil, err
		}, mostWrites + 5, mostWrites + 7},
		"changes of a shared": {func(t *testing.T, c *contest, i int) (bool, error) {
			err := c.number(why(t), i)
			return err == nil, err
		}, 3000, 3000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				contest := newContest(t)
				if err := contest.create(t, "a"); err != nil {
					t.Fatal(err)
				}
				writes := 0
				for i := range 3000 { // a minute
					counts, err := c.write(t, contest, i)
					var contention *ContentionError
					switch {
					case errors.As(err, &contention):
						if !contention.Churns || !contention.Until.After(time.Now()) || !Refused(err) {
							t.Fatal(err)
						}
					case err != nil:
						t.Fatal(err)
					case counts:
						writes++
					}
					time.Sleep(20 * time.Millisecond) // the clock of the bubble
				}
				if writes < c.least || writes > c.most {
					t.Errorf("there were %d writes within a minute, want %d to %d", writes, c.least, c.most)
				}
				if braked := c.most < 1000; braked != strings.Contains(contest.degraded(), "configmaps n/a changes again and again") {
					t.Errorf("health says %q", contest.degraded())
				}
				time.Sleep(5 * time.Minute) // the clock of the bubble: the input is calm
				if _, err := c.write(t, contest, -1); err != nil {
					t.Errorf("the last state is not written: %v", err)
				}
				if shown := contest.degraded(); shown != "" {
					t.Errorf("it is over, and health says %s", shown)
				}
			})
		})
	}
}

// K8S-25: what ordinary life has is not braked: thirty changes within a minute, and ten deletes; nor is another object, whatever one of them does.
func TestOrdinaryChangesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContest(t)
		key, other := churnKey{ref: a, deletes: true}, churnKey{ref: Ref{Resource: configMaps, Namespace: "n", Name: "b"}, deletes: true}
		report := c.contention
		for range 5 {
			for range mostDeletes {
				report.hasChanged(why(t), key)
				if err := report.mayChange(why(t), key); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(churnWindow + time.Second) // the clock of the bubble
		}
		for range mostDeletes + 1 {
			report.hasChanged(why(t), key)
		}
		if err := report.mayChange(why(t), key); err == nil {
			t.Error("the eleventh within a minute costs nothing")
		}
		if err := report.mayChange(why(t), other); err != nil {
			t.Errorf("another object waits: %v", err)
		}
		report.contention.reset()
		if err := report.mayChange(why(t), key); err != nil {
			t.Errorf("another term remembers it: %v", err)
		}
	})
}

// K8S-25: of a namespace no more than some thousand objects are remembered, and however many it has, those of another one wait.
func TestChurnIsBounded(t *testing.T) {
	c, now := newChurn(), time.Now()
	key := func(namespace string, i int) churnKey {
		return churnKey{ref: Ref{Namespace: namespace, Name: fmt.Sprint(i)}, deletes: true}
	}
	for range mostDeletes {
		c.add(key("aa", 0), now)
	}
	for i := range mostChanges + 100 {
		for range mostDeletes + 2 {
			c.add(key("bb", i), now)
		}
	}
	if bb := c.of[place{namespace: "bb"}]; len(bb.braked) != mostChanges || len(bb.counts) > mostChanges {
		t.Errorf("it remembers %d and %d objects", len(bb.braked), len(bb.counts))
	}
	if c.add(key("aa", 0), now) == nil {
		t.Error("what another namespace does has the count begin anew")
	}
	later := now.Add(24 * time.Hour)
	if c.add(key("cc", 0), later); len(c.of) != 1 {
		t.Errorf("a day later it remembers %d namespaces", len(c.of))
	}
}
