// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/runtime/cell"
)

// K8S-14: Events from before it is known what the role allows are made then, and only if it allows them.
func TestEventsOfTheFirstMoment(t *testing.T) {
	d := newDesk(t)
	all := func() (all []string) {
		list, err := admin(t, d.cluster).CoreV1().Events(d.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			all = append(all, e.Message+" "+e.Reason)
		}
		slices.Sort(all)
		return all
	}
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: d.namespace, Name: "x"}
	list := Allow("list", configMaps.GroupResource())
	record := func(with *desk, who string) {
		e := &Events{scope: cell.ModuleInfo{ID: "duty"}, client: with.client, writer: with.transport.term.Load(), permissions: with.permissions}
		e.Warning(about, "First", who)
		if got := all(); len(got) > 0 {
			t.Errorf("%v before anything is known", got)
		}
		with.learn(t)
		e.Warning(about, "Second", who)
	}
	record(d.as(t, "reader", list), "reader")
	record(d.as(t, "eventer", list, Allow("create,patch", events.GroupResource())), "eventer")
	until(t, "both Events", func() bool { return slices.Equal(all(), []string{"eventer First", "eventer Second"}) })
}

// K8S-14; K5 of the contract's tenants.md: an object that changes again and again, each time with another finding, costs 25 requests, and ten Events, of which
// the last counts the others. Other objects have theirs.
func TestEventsOfOneObject(t *testing.T) {
	d := newDesk(t)
	d.learn(t)
	e := &Events{scope: cell.ModuleInfo{ID: "duty"}, client: d.client, writer: d.transport.term.Load(), permissions: d.permissions}
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: d.namespace, Name: "changes"}
	for n := range 100 {
		e.Warning(about, "Finding", fmt.Sprint("finding ", n))
	}
	last := about
	last.Name = "last"
	e.Warning(last, "Last", "of another object")
	events := map[string]int{}
	until(t, "the Event of the other object", func() bool {
		list, err := admin(t, d.cluster).CoreV1().Events(d.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		clear(events)
		for _, e := range list.Items {
			events[e.InvolvedObject.Name]++
		}
		return events["last"] == 1
	})
	if verbs := d.verbs(t); len(verbs) != 26 || events["changes"] != 10 {
		t.Errorf("100 findings cost %d requests, and there are %d Events", len(verbs)-1, events["changes"])
	}
}
