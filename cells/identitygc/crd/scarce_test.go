// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// ofHundred has the cluster have a hundred numbers, of which so many have an identity. Of these 900 alone is not in use.
func (r *rig) ofHundred(identities int) {
	r.own = identity.Range{Min: 900, Max: 999}
	for n := range identities - 1 { // 999 is there
		r.identity(fmt.Sprint(900 + n))
		if n > 0 {
			r.endpoint(fmt.Sprint("user-", 900+n), int64(900+n))
		}
	}
}

func byOperators(c *cluster.Config) { c.OperatorManagesIdentities = true }

// IDGC-21, IDGC-E17; number 4.6 of the contract's tenants.md: while numbers are scarce, what no pod has any more goes within minutes, but not where agents make identities, which
// need the time to publish what they use.
func TestScarce(t *testing.T) {
	soon, late := []string{"2m0s mark 900", "4m0s delete 900"}, []string{"17m0s mark 900", "49m0s delete 900"}
	for name, c := range map[string]struct {
		identities int
		mode       func(*cluster.Config)
		want       []string
	}{
		"scarce":               {80, byOperators, soon},
		"not scarce":           {79, byOperators, late},
		"agents make them":     {80, func(*cluster.Config) {}, late},
		"agents make some":     {80, func(c *cluster.Config) { c.IdentityManagementMode = "both" }, late},
		"agents may make some": {80, func(c *cluster.Config) { c.IdentityManagementMode = "both"; byOperators(c) }, late},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				c.mode(&r.cluster)
				r.ofHundred(c.identities)
				for n := range 20 { // those of other clusters do not count
					r.identity(fmt.Sprint(70_000 + n))
				}
				r.start()
				r.at(3 * time.Hour)
				r.happened(c.want...)
			})
		})
	}
}

// IDGC-21: they become scarce long before the next run.
func TestBecomesScarce(t *testing.T) {
	inBubble(t, func(r *rig) {
		byOperators(&r.cluster)
		r.ofHundred(79)
		r.start()
		r.at(5 * time.Minute)
		r.happened()
		r.identity("998")
		r.endpoint("new", 998)
		r.at(8 * time.Minute)
		if _, there := r.text("900"); there {
			t.Errorf("it is there: %v", r.notes)
		}
	})
}

// IDGC-21: when they are scarce no more, all is as before.
func TestScarceNoMore(t *testing.T) {
	inBubble(t, func(r *rig) {
		byOperators(&r.cluster)
		r.ofHundred(80)
		r.start()
		r.at(5*time.Minute + 30*time.Second)
		r.happened("2m0s mark 900", "4m0s delete 900")
		r.endpoints.Delete(slim.Key{Name: "user-901"})
		r.at(20 * time.Minute)
		r.happened()
		r.at(3 * time.Hour)
		var at []time.Duration
		for _, note := range r.notes {
			d, err := time.ParseDuration(strings.Fields(note)[0])
			if err != nil {
				t.Error(err)
			}
			at = append(at, d)
		}
		if len(at) != 2 || at[1]-at[0] < 30*time.Minute {
			t.Errorf("what happened: %v", r.notes)
		}
	})
}

// IDGC-21, IDGC-5, IDGC-9, IDGC-17: the safety stays: what is used again is unmarked and kept, and most of all identities are not deleted at once.
func TestSafetyWhileScarce(t *testing.T) {
	inBubble(t, func(r *rig) {
		byOperators(&r.cluster)
		r.ofHundred(80)
		r.start()
		r.at(2*time.Minute + time.Second)
		r.happened("2m0s mark 900")
		r.assigned.set("web", 900)
		r.at(time.Hour)
		r.happened("2m1s unmark 900")
		for n := range 50 {
			r.endpoints.Delete(slim.Key{Name: fmt.Sprint("user-", 901+n)})
			r.setMark(fmt.Sprint(901+n), time.Now().Add(-time.Hour).Format(time.RFC3339Nano))
		}
		r.at(2 * time.Hour)
		r.happened()
		if d := r.degraded(); !strings.Contains(d, "50 of 80 objects") {
			t.Errorf("degraded: %s", d)
		}
	})
}

// IDGC-21, IDGC-17; K4 of the contract's tenants.md: of a namespace that has most identities that look unused a few go in each run while numbers are scarce, so that it does not keep
// all of them from others; then the rest, once it is believed.
func TestFewOfOneNamespaceWhileScarce(t *testing.T) {
	inBubble(t, func(r *rig) {
		byOperators(&r.cluster)
		r.ofHundred(95)
		for n := range 50 {
			name := fmt.Sprint(901 + n)
			r.endpoints.Delete(slim.Key{Name: "user-" + name})
			i := &ciliumio.Identity{SecurityLabels: slim.MakeLabels(map[string]string{identity.NamespaceLabel: "bb", "k8s:app": name})}
			i.Name, i.UID = name, slim.ParseUID("of-bb-"+name)
			r.identities.Upsert(i)
		}
		r.start()
		r.at(8*time.Minute + time.Second)
		deleted := 0
		for n := range 51 {
			if _, there := r.text(fmt.Sprint(900 + n)); !there {
				deleted++
			}
		}
		if d := r.degraded(); deleted < 3 || deleted > 8 || !strings.Contains(d, "1 at a time are deleted in the namespace bb") {
			t.Errorf("after 8 minutes %d are deleted; degraded: %s", deleted, d)
		}
		if few := r.collector.fewWhileScarce(); few > 0 {
			t.Errorf("%d more go within a minute", few)
		}
		r.at(3 * time.Hour)
		for n := range 95 {
			name := fmt.Sprint(900 + n)
			if _, there := r.text(name); there == (n <= 50) && n < 94 {
				t.Errorf("identity %s is there: %t", name, there)
			}
		}
	})
}
