// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// endpointSlices are the CiliumEndpointSlices, as a watch tells of them.
// Endpoints go by namespace/name.
type endpointSlices struct {
	appeared *sightings[string] // endpoints in a slice
	vanished *sightings[string] // endpoints in no slice any more

	mu    sync.Mutex
	of    map[string]map[string]bool // endpoints, by slice
	in    map[string]int             // how many slices have an endpoint
	moves []move
}

// move is that an endpoint came into a slice or left it.
type move struct{ slice, endpoint string }

// watchSlices waits until slices are defined, which the operator sees to.
func (p *plane) watchSlices(ctx context.Context) (*endpointSlices, error) {
	err := until(ctx, func() (bool, error) {
		_, err := p.client.Resource(ciliumEndpointSlices).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	all := &endpointSlices{
		appeared: newSightings[string](), vanished: newSightings[string](),
		of: map[string]map[string]bool{}, in: map[string]int{},
	}
	return all, p.followKind(ctx, ciliumEndpointSlices, all.handleEvent)
}

func (all *endpointSlices) handleEvent(event watch.EventType, slice *unstructured.Unstructured) {
	at, now := time.Now(), map[string]bool{}
	if event != watch.Deleted {
		namespace, _, _ := unstructured.NestedString(slice.Object, "namespace")
		endpoints, _, _ := unstructured.NestedFieldNoCopy(slice.Object, "endpoints")
		list, _ := endpoints.([]any)
		for _, endpoint := range list {
			fields, _ := endpoint.(map[string]any)
			name, _ := fields["name"].(string)
			now[namespace+"/"+name] = true
		}
	}
	came, went := all.replace(slice.GetName(), now)
	all.appeared.record(at, came...)
	all.vanished.record(at, went...)
}

// replace returns which endpoints are in a slice now and were in none, and the
// other way round.
func (all *endpointSlices) replace(slice string, now map[string]bool) (came, went []string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	before := all.of[slice]
	for endpoint := range now {
		if before[endpoint] {
			continue
		}
		all.moves = append(all.moves, move{slice, endpoint})
		if all.in[endpoint]++; all.in[endpoint] == 1 {
			came = append(came, endpoint)
		}
	}
	for endpoint := range before {
		if now[endpoint] {
			continue
		}
		all.moves = append(all.moves, move{slice, endpoint})
		if all.in[endpoint]--; all.in[endpoint] == 0 {
			went = append(went, endpoint)
			delete(all.in, endpoint)
		}
	}
	all.of[slice] = now
	if len(now) == 0 {
		delete(all.of, slice)
	}
	return came, went
}

// begin forgets what was seen, though not what there is.
func (all *endpointSlices) begin() {
	all.appeared.forget()
	all.vanished.forget()
	all.mu.Lock()
	defer all.mu.Unlock()
	all.moves = nil
}

// least is how many writes a writer needs that gathers what happens to a slice
// for a while: it opens a window at the first event of a slice, and writes all
// events of the window at once. causes are when each endpoint came or went.
func (all *endpointSlices) least(causes map[string]time.Time, window time.Duration) int {
	all.mu.Lock()
	defer all.mu.Unlock()
	events := map[string][]time.Time{}
	for _, m := range all.moves {
		if at, ok := causes[m.endpoint]; ok {
			events[m.slice] = append(events[m.slice], at)
		}
	}
	n := 0
	for _, times := range events {
		n += windows(times, window)
	}
	return n
}

// windows is how many windows hold all times, each opened by the first time that
// is in none.
func windows(times []time.Time, window time.Duration) (n int) {
	var end time.Time
	for _, at := range slices.SortedFunc(slices.Values(times), time.Time.Compare) {
		if n == 0 || at.After(end) {
			n++
			end = at.Add(window)
		}
	}
	return n
}

// fill is how full slices are, in percent, if they may hold 100 endpoints.
func (all *endpointSlices) fill() (percent float64, slices int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	endpoints := 0
	for _, of := range all.of {
		endpoints += len(of)
	}
	return float64(endpoints) / float64(max(1, len(all.of))), len(all.of)
}
