// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/runtime/seedtest"
)

// K8S-24, ING-29, GW-59: within the memory of the manifests large objects of a namespace are cut that come when there is no more memory for
// them, and say so. What came before stays, another namespace is served meanwhile, and once there is memory they are served.
func TestLargeObjectsOfANamespace(t *testing.T) {
	if seedtest.RaceEnabled {
		t.Skip("the race detector needs several times the memory")
	}
	l := newLargest(t)
	l.start()
	for _, name := range []string{"ingresses: paths of one host", "httproutes: edits of headers of each backend"} {
		i := slices.IndexFunc(giants, func(g giant) bool { return g.String() == name })
		if i < 0 {
			t.Fatalf("no giants are %s", name)
		}
		g := giants[i]
		t.Run(g.String(), func(t *testing.T) {
			outer := l.t
			l.t = t
			defer func() { l.t = outer }()
			c := &crowd{largest: l, giant: g, namespaces: []string{attacker}, n: g.n}
			defer func() {
				c.keep(0)
				c.drop(g.beside, attacker)
				l.rests(g.String()+" are gone", restsWithin)
			}()
			const many = 20
			c.makeAll(many)
			var cut []string
			eventually(t, "some of them are cut", func() bool { cut = c.cut(); return len(cut) > 0 || !l.o.running() })
			l.servesOthers(g.String(), servedWithin)
			l.rests(g.String(), restsWithin)
			l.alive()
			if cut = c.cut(); len(cut) == 0 || len(cut) == many {
				t.Fatalf("cut are %v of %d", cut, many)
			}
			if g.kind == "Ingress" { // an Event stays
				return
			}
			for i := range many {
				if !slices.Contains(cut, g.name(i)) {
					l.remove(g.resource, attacker, g.name(i))
				}
			}
			left := len(cut)
			eventually(t, "once there is memory, they are whole", func() bool { return len(c.cut()) < left || !l.o.running() })
			l.alive()
		})
	}
}

// cut are the names of those that say that they are cut, an Ingress in an Event.
func (c *crowd) cut() (all []string) {
	c.t.Helper()
	const says = "the large objects of its namespace have no more"
	if c.giant.kind == "Ingress" {
		events, err := c.core.CoreV1().Events(attacker).List(c.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Ingress"})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, says) {
				all = append(all, e.InvolvedObject.Name)
			}
		}
		slices.Sort(all)
		return slices.Compact(all) // it may have been cut, served, and cut again
	}
	list, err := c.in(c.giant.resource, attacker).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, u := range list.Items {
		if strings.Contains(fmt.Sprint(u.Object["status"]), says) {
			all = append(all, u.GetName())
		}
	}
	return all
}
