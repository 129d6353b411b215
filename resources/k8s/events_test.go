// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

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

// newEvent is an Event as a module makes it.
func newEvent(object, revision int, message string) *corev1.Event {
	return &corev1.Event{
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: "bb", Name: fmt.Sprint("x", object), UID: types.UID(fmt.Sprint(object)), ResourceVersion: fmt.Sprint(revision),
		},
		Source: corev1.EventSource{Component: "skep/duty"}, Type: corev1.EventTypeWarning, Reason: "Finding", Message: shown(message), Count: 1,
	}
}

// K8S-14: the revision of an object makes no other one of it, and other objects have their own Events.
func TestCorrelationOfEvents(t *testing.T) {
	c := record.NewEventCorrelatorWithOptions(correlation)
	var sent, combined int
	for n := range 100 {
		r, err := c.EventCorrelate(newEvent(1, n, fmt.Sprint("finding ", n)))
		if err != nil {
			t.Fatal(err)
		}
		if !r.Skip {
			sent++
			if strings.HasPrefix(r.Event.Message, "(combined") {
				combined++
			}
		}
	}
	if sent != 25 || combined != 16 {
		t.Errorf("%d are sent, of which %d are combined", sent, combined)
	}
	if r, err := c.EventCorrelate(newEvent(2, 1, "finding 1")); err != nil || r.Skip || r.Event.Message != "finding 1" {
		t.Errorf("of another object: %+v, %v", r, err)
	}
}

// K8S-14; K5 of the contract's tenants.md: objects that are created and deleted again and again do not fill the memory with the messages of their Events.
func TestMemoryOfEvents(t *testing.T) {
	c := record.NewEventCorrelatorWithOptions(correlation)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range 3_000 {
		for m := range 10 {
			if _, err := c.EventCorrelate(newEvent(n, 1, fmt.Sprint(m, strings.Repeat("é", 1000)))); err != nil {
				t.Fatal(err)
			}
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if size := int64(after.HeapAlloc) - int64(before.HeapAlloc); size > 3<<20 {
		t.Errorf("%d bytes are kept", size)
	}
	runtime.KeepAlive(c)
}
