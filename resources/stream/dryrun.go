// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/plan"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// In a plan a stream shows what is planned: objects in their planned states take
// the place of those of the server, with resourceVersions of the plan's own. They
// do not count as progress of the server: Reach and Confirm wait for that alone.

// followPlan shows what is planned from now on, until stop is called.
func (r *run[T]) followPlan() (stop func()) {
	return r.source.plan.Objects().Follow(r.kind.gvr, func(key slim.Key) {
		r.changes.mu.Lock()
		defer r.changes.unlockAndReport()
		r.showPlan(key)
	})
}

// showPlan takes over the planned state of an object, with the lock held. Before
// the initial state is there it is left to that.
func (r *run[T]) showPlan(key slim.Key) {
	state, base, held := r.source.plan.Objects().Planned(r.kind.gvr, key)
	c := r.changes
	switch n, _ := c.nodes.Get(key); {
	case !c.isSynced():
		return
	case !held:
		// The server's state holds, of which this stream took no notice.
		r.refreshes.add()
		return
	case n != nil && !n.deleted && !plan.IsPlanned(n.meta().ResourceVersion.String()) && uint64(n.meta().ResourceVersion) > base:
		r.planned(n.meta())
	}
	if obj := r.decodePlan(state); obj != nil {
		c.put(obj)
		c.advance(c.revision) // for those who wait for this object
	} else {
		c.remove(key, c.revision)
	}
}

// decodePlan is a planned object as the stream keeps it, nil if it is not one of
// those that the stream has.
func (r *run[T]) decodePlan(state *unstructured.Unstructured) *T {
	if state == nil {
		return nil
	}
	selected, err := plan.SelectorOf(r.kind.namespace, r.kind.labels, r.kind.fields)
	if err != nil || !selected(state) {
		return nil
	}
	raw, err := json.Marshal(state.Object)
	if err != nil {
		return nil
	}
	switch obj := r.newDecoder().object(inJSON, raw).(type) {
	case *object[T]:
		return &obj.value
	case *named:
		r.changes.cannotRead(slim.Key{Namespace: state.GetNamespace(), Name: state.GetName()}, obj.err)
	}
	return nil
}

// planned reports whether the plan's state of an object is shown in place of a
// state of the server.
func (r *run[T]) planned(server *slim.Meta) bool {
	return r.source.plan.Objects().Newer(r.kind.gvr, server.Key(), uint64(server.ResourceVersion))
}

// mergePlan puts planned states in place of those of a complete state of the
// server.
func (r *run[T]) mergePlan(objs []*T, same []slim.Key) ([]*T, []slim.Key) {
	keys := r.source.plan.Objects().Keys(r.kind.gvr)
	if len(keys) == 0 {
		return objs, same
	}
	held := map[slim.Key]bool{}
	for _, key := range keys {
		held[key] = true
	}
	objs = slices.DeleteFunc(objs, func(obj *T) bool { return r.planned(slim.MetaOf(obj)) })
	same = slices.DeleteFunc(same, func(key slim.Key) bool { return held[key] })
	for _, key := range keys {
		state, _, _ := r.source.plan.Objects().Planned(r.kind.gvr, key)
		if obj := r.decodePlan(state); obj != nil {
			objs = append(objs, obj)
		}
	}
	return objs, same
}

// load is what the streams are at, for a plan.
func (s *Streams) load() (load plan.Load) {
	for _, state := range s.States() {
		if !state.Running {
			continue
		}
		_, absent := state.Wrong[conditionResource]
		switch {
		case state.Synced:
		case absent && !s.source.plan.Objects().Defines(state.Name):
			load.Waiting = append(load.Waiting, "stream "+state.Name+": "+state.Wrong[conditionResource])
		default:
			load.Busy = append(load.Busy, "stream "+state.Name+": not synced")
		}
		for _, sub := range state.Subscribers {
			who := "stream " + state.Name + ", " + sub.Name
			if n := sub.Pending + sub.InFlight; n > 0 && state.Synced {
				load.Busy = append(load.Busy, fmt.Sprintf("%s: %d to be delivered", who, n))
			}
			if sub.Retrying > 0 {
				load.Retrying = append(load.Retrying, fmt.Sprintf("%s: %d wait for a retry", who, sub.Retrying))
			}
		}
	}
	return load
}
