// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// namespaceOf is the namespace of a thing that is named <namespace>/<name>, "" for others.
func namespaceOf(name string) string {
	namespace, _, ok := strings.Cut(name, "/")
	if !ok {
		return ""
	}
	return namespace
}

func inNamespace(namespace string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s/%04d", namespace, i))
	}
	return all
}

// tenants is a sweep of things of several namespaces. Of all others the same number is kept.
func tenants(t *testing.T, garbage ...string) *rig {
	spec := usual
	spec.Namespace = namespaceOf
	r := newRig(t, spec)
	r.garbage, r.total = garbage, 20_000
	return r
}

// deletes are the names of what was deleted, in order, and how many scans there were.
func (r *rig) deletes() (names []string, scans int) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.notes {
		fields := strings.Fields(n)
		if fields[1] == "scan" {
			scans++
		} else {
			names = append(names, strings.TrimSuffix(fields[2], ":"))
		}
	}
	return names, scans
}

// EPGC-20: K7 of the contract's tenants.md. However much is left of one namespace, the k-th deletion of each other one comes before its (k+1)-th.
func TestNamespacesHaveTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tenants(t, slices.Concat(inNamespace("bb", 5000), inNamespace("aa", 3), inNamespace("cc", 2))...)
		r.start()
		time.Sleep(grace + time.Second)
		names, _ := r.deletes()
		if got, want := names[:8], []string{"aa/0000", "bb/0000", "cc/0000", "aa/0001", "bb/0001", "cc/0001", "aa/0002", "bb/0002"}; !slices.Equal(got, want) {
			t.Errorf("deleted are %q, want %q", got, want)
		}
		r.stop()
	})
}

// EPGC-20: a sweep ends after 200 deletions, so that what comes meanwhile is seen, and what it leaves comes with the next one, which begins at once.
func TestASweepThatIsLongGoesOnWithTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tenants(t, inNamespace("bb", 3000)...)
		r.start()
		time.Sleep(grace + 30*time.Second)
		if names, scans := r.deletes(); len(names) != 601 || scans != 1+4 {
			t.Errorf("%d deletions and %d scans in half a minute", len(names), scans)
		}
		r.set(func() { r.garbage = append(slices.Clone(r.garbage), inNamespace("aa", 10)...) })
		time.Sleep(grace + 25*time.Second)
		if left := r.left(); slices.ContainsFunc(left, func(name string) bool { return namespaceOf(name) == "aa" }) {
			t.Errorf("of aa there is more: %q", left[:10])
		}
		time.Sleep(2 * time.Minute)
		if left := r.left(); len(left) > 0 {
			t.Errorf("%d are left after %s", len(left), time.Since(r.began))
		}
		r.stop()
		if n := strings.Count(r.log.String(), `msg="deleted garbage"`); n != 4 {
			t.Errorf("%d lines:\n%s", n, r.log.String())
		}
		if !strings.Contains(r.log.String(), "deleted=200") {
			t.Error("the first one is not about the first sweep")
		}
	})
}

// K7 of the contract's tenants.md: what cannot be deleted holds up the others of its namespace no more than of another one, and has no sweep wait.
func TestFailuresGoBehindOthersOfTheirNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tenants(t, inNamespace("bb", 1000)...)
		for i := range 300 {
			r.fails[fmt.Sprintf("bb/%04d", i)] = errors.New("denied")
		}
		r.start()
		time.Sleep(grace + 60*time.Second)
		if left := r.left(); len(left) != 300 {
			t.Errorf("%d are left", len(left))
		}
		r.stop()
	})
}

// EPGC-20: where nothing is due but what has failed, the pause grows with each failure, however much it is.
func TestFailuresAloneAreTriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tenants(t, inNamespace("bb", 300)...)
		for _, name := range r.garbage {
			r.fails[name] = errors.New("denied")
		}
		r.start()
		time.Sleep(grace + 25*time.Second)
		r.deletes()
		if got := r.degraded(); !strings.Contains(got, "denied") {
			t.Errorf("health has %q", got)
		}
		_, before := r.deletes()
		time.Sleep(30 * time.Minute)
		if _, scans := r.deletes(); scans-before > 61 {
			t.Errorf("%d sweeps in half an hour", scans-before)
		}
		r.stop()
		if n := strings.Count(r.log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, r.log.String())
		}
	})
}

// EPGC-20: a failure among what is left to other sweeps is in health, and in the log once, until nothing is left.
func TestOneFailureOfManySweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := tenants(t, inNamespace("bb", 3000)...)
		for i := range 3 {
			r.fails[fmt.Sprintf("bb/%04d", i*1000)] = errors.New("denied")
		}
		r.start()
		time.Sleep(grace + 2*time.Minute)
		if got := r.degraded(); !strings.Contains(got, "denied") {
			t.Errorf("health has %q", got)
		}
		r.stop()
		if n := strings.Count(r.log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, r.log.String())
		}
	})
}

// EPGC-20, K7 of the contract's tenants.md: sweeps that the API server ends begin with the namespaces that have not had their turn.
func TestSweepsThatEndEarlyGoOnWithTheNextNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var garbage []string
		for i := range 10 {
			garbage = append(garbage, inNamespace(fmt.Sprintf("a%02d", i), 50)...)
		}
		r := tenants(t, append(garbage, "shop/1", "shop/2")...)
		for _, name := range garbage {
			r.fails[name] = tooMany(30)
		}
		r.start()
		time.Sleep(grace + 10*31*time.Second)
		if left := r.left(); slices.Contains(left, "shop/1") {
			t.Error("shop has had no turn")
		}
		r.stop()
	})
}

// The pause that the API server asks for holds, whatever else has failed in the sweep.
func TestRetryAfterBesideOtherFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := usual
		spec.Workers = 4
		r := newRig(t, spec)
		r.garbage = []string{"a", "b", "c", "d", "e", "f"}
		for _, name := range r.garbage[:4] {
			r.fails[name] = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, name, errors.New("denied"))
		}
		r.fails["e"] = tooMany(45)
		r.start()
		time.Sleep(grace + 40*time.Second)
		if got := r.degraded(); !strings.Contains(got, "next sweep in 45s, the API server asks for a pause of 45s") {
			t.Error(got)
		}
		if _, scans := r.deletes(); scans != 2 {
			t.Errorf("%d scans", scans)
		}
		r.stop()
	})
}

// Where namespaces have nothing to do with it, a sweep deletes all that is due, in the order of the scan: objects without one, and those whose rate the duty knows.
func TestSweepsWithoutPortions(t *testing.T) {
	for name, change := range map[string]func(*Spec[string, string]){
		"no namespaces":     func(s *Spec[string, string]) { s.Namespace = nil },
		"none has one":      func(s *Spec[string, string]) { s.Namespace = func(string) string { return "" } },
		"a rate of its own": func(s *Spec[string, string]) { s.Rate = rate.NewLimiter(20, 1) },
		"a single sweep":    func(s *Spec[string, string]) { s.Interval = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec := usual
				spec.Namespace = namespaceOf
				change(&spec)
				r := newRig(t, spec)
				r.garbage, r.total = inNamespace("bb", 500), 2000
				r.start()
				time.Sleep(grace + 25*time.Second)
				names, scans := r.deletes()
				if spec.Interval > 0 {
					scans--
				}
				if !slices.Equal(names, inNamespace("bb", 500)) || scans != 1 {
					t.Errorf("%d deletions in %d sweeps", len(names), scans)
				}
				r.stop()
			})
		})
	}
}
