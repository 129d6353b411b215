// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
)

// agentsUnderFaults are what the operator gathers in slices, endpoints or pods. They
// tell other identities and addresses, or none; slices are deleted, edited and made
// by hand.
type agentsUnderFaults struct {
	*podsUnderFaults
	tellers
	places *places
	byHand map[string]int // what was done

	mu    sync.Mutex
	tells map[string][]telling // what was told of each endpoint, the earliest first
}

// telling is whether an identity and addresses were told, from a revision on.
type telling struct {
	revision uint64
	whole    bool
}

// fewInSlice is so small a capacity that there are many slices.
const fewInSlice = 3

// gathering is a way in which endpoints come into slices.
type gathering struct {
	name    string
	args    []string
	tellers func(*podsUnderFaults) tellers
}

var gatherings = []gathering{
	{"endpoints by identity", []string{"--ces-slice-mode=identity"}, ofEndpoints},
	{"endpoints as they come", []string{"--ces-slice-mode=fcfs"}, ofEndpoints},
	{"pods by identity", []string{"--ces-slice-mode=identity", "--ces-controller-mode=slim"}, ofPods},
}

func slicesUnderFaults(f *turmoil) underFaults {
	a := &agentsUnderFaults{
		podsUnderFaults: f.pods, tellers: f.way.tellers(f.pods),
		places: f.pods.tenants.watchPlaces(), byHand: map[string]int{}, tells: map[string][]telling{},
	}
	f.witness(a.resource(), a.see)
	return underFaults{
		name: "slices",
		args: slices.Concat(f.way.args, []string{
			"--enable-cilium-endpoint-slice", fmt.Sprint("--ces-max-ciliumendpoints-per-ces=", fewInSlice),
			`--ces-rate-limits=[{"nodes":0,"limit":50,"burst":100}]`,
		}),
		churn:   []func(){a.identify, a.identify, a.identifyAll, a.readdress, a.silence, a.remove, a.edit, a.forge},
		newTerm: func() { a.identifyAll(); a.forge(); a.remove(); a.edit() },
		last:    a.removeSettled,
		rest:    a.rest,
		missing: a.missing,
		end:     a.end,
	}
}

// identify lets who tells about a pod look at it.
func (a *agentsUnderFaults) identify() {
	if pod, ok := a.some(); ok {
		a.look(pod, a.tenants.numbersBySet())
	}
}

// identifyAll lets all look.
func (a *agentsUnderFaults) identifyAll() {
	numbers := a.tenants.numbersBySet()
	for _, pod := range a.pods {
		a.look(pod, numbers)
	}
}

// readdress gives a pod another address.
func (a *agentsUnderFaults) readdress() {
	if pod, ok := a.some(); ok {
		a.move(pod, a.ip())
	}
}

// silence lets nothing be told of a pod for a while.
func (a *agentsUnderFaults) silence() {
	if pod, ok := a.some(); ok {
		a.mute(pod)
	}
}

// slice is one of some slices.
func (a *agentsUnderFaults) slice(which func(*unstructured.Unstructured) bool) (slice *unstructured.Unstructured, ok bool) {
	list := slices.DeleteFunc(a.list(v2alpha1.CiliumEndpointSliceResource).Items, func(s unstructured.Unstructured) bool { return !which(&s) })
	at, ok := one(a.r, list)
	if !ok {
		return nil, false
	}
	return &list[at], true
}

// known reports whether the operator has surely seen a slice. One that is deleted
// before is missed after up to a minute (docs/wire/endpointslice.md, CES-13).
func known(slice *unstructured.Unstructured) bool {
	return time.Since(slice.GetCreationTimestamp().Time) > calmsWithin/2
}

func (a *agentsUnderFaults) remove() { a.removeOne(known) }

func (a *agentsUnderFaults) removeSettled() {
	a.removeOne(func(slice *unstructured.Unstructured) bool {
		return known(slice) && slices.Contains(endpointsOf(slice), home+"/"+settled)
	})
}

// removeOne deletes a slice by hand.
func (a *agentsUnderFaults) removeOne(which func(*unstructured.Unstructured) bool) {
	slice, ok := a.slice(which)
	if !ok {
		return
	}
	a.write("deleted", func() (string, error) {
		uid := string(slice.GetUID())
		return uid, a.dynamic.Resource(v2alpha1.CiliumEndpointSliceResource).Delete(a.t.Context(), slice.GetName(),
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(uid)})
	})
}

func hasEndpoints(slice *unstructured.Unstructured) bool { return len(endpointsOf(slice)) > 0 }

// edit writes a slice by hand.
func (a *agentsUnderFaults) edit() {
	what := a.r.IntN(4)
	slice, ok := a.slice(hasEndpoints)
	if !ok {
		return
	}
	entries := entriesOf(slice)
	at, _ := one(a.r, entries)
	switch what {
	case 0:
		entries = slices.Delete(entries, at, at+1)
	case 1:
		entries[at].(map[string]any)["id"] = int64(1)
	case 2:
		entries = append(entries, a.phantom())
	case 3:
		slice.Object["namespace"] = a.somewhere()
	}
	slice.Object["endpoints"] = entries
	a.write("edited", func() (string, error) {
		made, err := a.dynamic.Resource(v2alpha1.CiliumEndpointSliceResource).Update(a.t.Context(), slice, metav1.UpdateOptions{})
		if err != nil {
			return "", err
		}
		return made.GetResourceVersion(), nil
	})
}

// forge makes a slice by hand, with endpoints of another one.
func (a *agentsUnderFaults) forge() {
	slice, ok := a.slice(hasEndpoints)
	if !ok {
		return
	}
	forged := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": slice.GetAPIVersion(), "kind": slice.GetKind(), "metadata": map[string]any{"name": fmt.Sprint("ces-forged-", a.number())},
		"namespace": slice.Object["namespace"], "endpoints": append(entriesOf(slice), a.phantom()),
	}}
	a.write("forged", func() (string, error) {
		made, err := a.dynamic.Resource(v2alpha1.CiliumEndpointSliceResource).Create(a.t.Context(), forged, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return made.GetResourceVersion(), nil
	})
}

// phantom is an entry of an endpoint that is not there.
func (a *agentsUnderFaults) phantom() map[string]any {
	return map[string]any{"name": fmt.Sprint("phantom-", a.number()), "id": int64(a.tenants.numbers.Min), "encryption": map[string]any{}}
}

// write does something to a slice, which the operator may be faster at.
func (a *agentsUnderFaults) write(what string, write func() (mark string, err error)) {
	a.places.byHand(func() string {
		mark, err := write()
		switch {
		case err == nil:
			a.byHand[what]++
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			a.t.Errorf("slice %s by hand: %v", what, err)
		}
		return mark
	})
}

func (a *agentsUnderFaults) see(kind watch.EventType, teller *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := teller.GetNamespace() + "/" + teller.GetName()
	a.tells[key] = append(a.tells[key], telling{revisionOf(teller), kind != watch.Deleted && a.whole(teller)})
}

// told is what slices are to say of all endpoints, by namespace and name.
func (a *agentsUnderFaults) told() map[string]string {
	says, numbers := map[string]string{}, a.tenants.numbersBySet()
	for _, teller := range a.list(a.resource()).Items {
		if a.whole(&teller) {
			says[teller.GetNamespace()+"/"+teller.GetName()] = a.entry(&teller, numbers)
		}
	}
	return says
}

// showsAll reports whether what was told last has been seen.
func (a *agentsUnderFaults) showsAll() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	whole := map[string]bool{}
	for endpoint, tells := range a.tells {
		if tells[len(tells)-1].whole {
			whole[endpoint] = true
		}
	}
	return maps.EqualFunc(whole, a.told(), func(bool, string) bool { return true })
}

func entryOf(id, networking any) string {
	text, err := json.Marshal([]any{id, networking})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// rest: every endpoint is in one slice, which says what was told; nothing else is in
// a slice, and none is empty or too full.
func (a *agentsUnderFaults) rest() error {
	a.identifyAll()
	want, in := a.told(), map[string]string{}
	for _, slice := range a.list(v2alpha1.CiliumEndpointSliceResource).Items {
		entries := entriesOf(&slice)
		if len(entries) == 0 || len(entries) > fewInSlice {
			return fmt.Errorf("slice %s has %d endpoints", slice.GetName(), len(entries))
		}
		for i, endpoint := range endpointsOf(&slice) {
			e := entries[i].(map[string]any)
			switch says := entryOf(e["id"], e["networking"]); {
			case in[endpoint] != "":
				return fmt.Errorf("%s is in slices %s and %s", endpoint, in[endpoint], slice.GetName())
			case want[endpoint] != says:
				return fmt.Errorf("slice %s says of %s %q, which says %q", slice.GetName(), endpoint, says, want[endpoint])
			}
			in[endpoint] = slice.GetName()
		}
	}
	for endpoint := range want {
		if in[endpoint] == "" {
			return fmt.Errorf("%s is in no slice", endpoint)
		}
	}
	return nil
}

// wrong says of a loss that the endpoint was there all the time since it came into
// a slice.
func (a *agentsUnderFaults) wrong(l loss) bool {
	whole := false
	for _, t := range a.tells[l.endpoint] {
		switch {
		case t.revision > l.at:
		case !t.whole && t.revision > l.since:
			return false
		default:
			whole = t.whole
		}
	}
	return whole
}

func (a *agentsUnderFaults) end() {
	eventually(a.t, "all is seen of slices and endpoints", func() bool { return a.places.show(a.tenants.slicedIn()) && a.showsAll() })
	a.mu.Lock()
	defer a.mu.Unlock()
	excused := 0
	for _, l := range a.places.losses() {
		if a.wrong(l) {
			a.t.Errorf("endpoint %s was taken out of all slices", l)
		} else {
			excused++
		}
	}
	moves := a.places.moved()
	a.t.Logf("slices: %d endpoints moved, %d left; by hand %v", moves, excused, a.byHand)
}

func (a *agentsUnderFaults) missing() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if moves, left := a.places.moved(), len(a.places.losses()); moves == 0 || left == 0 || len(a.byHand) < 3 {
		return fmt.Errorf("%d endpoints moved between slices, %d left, by hand %v", moves, left, a.byHand)
	}
	return nil
}
