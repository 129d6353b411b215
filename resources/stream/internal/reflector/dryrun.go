// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// In a dry run a stream shows planned states in place of those of the server, with
// resourceVersions of the plan's own. These are not progress of the server:
// WaitForRevision and WaitForFresh do not count them.

// followPlan shows what is planned from now on, until stop is called.
func (r *Reflector[P]) followPlan() (stop func()) {
	return r.Plan.Objects().Follow(r.Resource, func(key slim.Key) {
		r.changes.Lock()
		defer r.changes.Unlock()
		r.updatePlanned(key)
	})
}

// updatePlanned sets the planned state of an object, with the lock held. Before the
// initial state is complete, mergePlan does.
func (r *Reflector[P]) updatePlanned(key slim.Key) {
	state, base, held := r.Plan.Objects().Planned(r.Resource, key)
	c := r.changes
	switch obj, exists := c.Current(key); {
	case !c.IsSynced():
		return
	case !held:
		// The server's state holds, which this stream has not kept.
		r.relists.add()
		return
	case exists && !dryrun.IsPlanned(slim.MetaOf(obj).ResourceVersion.String()) && uint64(slim.MetaOf(obj).ResourceVersion) > base:
		r.isPlanned(slim.MetaOf(obj))
	}
	if obj, is := r.decodePlan(state); is {
		c.Put(obj)
		c.Advance(0) // for those who wait for this object
	} else {
		c.Remove(key, 0)
	}
}

// decodePlan is a planned object as the stream keeps it, if it is one of those that
// the stream has.
func (r *Reflector[P]) decodePlan(state *unstructured.Unstructured) (obj P, is bool) {
	if state == nil {
		return obj, false
	}
	selected, err := dryrun.SelectorOf(r.Namespace, r.Labels, r.Fields)
	if err != nil || !selected(state) {
		return obj, false
	}
	raw, err := json.Marshal(state.Object)
	if err != nil {
		return obj, false
	}
	switch found := r.newDecoder().object(inJSON, raw).(type) {
	case item[P]:
		return found.pointer(), true
	case *metadataOnly:
		r.changes.MarkUnreadable(slim.Key{Namespace: state.GetNamespace(), Name: state.GetName()}, found.err)
	}
	return obj, false
}

// isPlanned reports whether the plan's state of an object is shown in place of a
// state of the server.
func (r *Reflector[P]) isPlanned(server *slim.Meta) bool {
	return r.Plan.Objects().Newer(r.Resource, server.Key(), uint64(server.ResourceVersion))
}

// mergePlan puts planned states in place of those of a complete state of the
// server.
func (r *Reflector[P]) mergePlan(objs []P, same []slim.Key) ([]P, []slim.Key) {
	keys := r.Plan.Objects().Keys(r.Resource)
	if len(keys) == 0 {
		return objs, same
	}
	held := map[slim.Key]bool{}
	for _, key := range keys {
		held[key] = true
	}
	objs = slices.DeleteFunc(objs, func(obj P) bool { return r.isPlanned(slim.MetaOf(obj)) })
	same = slices.DeleteFunc(same, func(key slim.Key) bool { return held[key] })
	for _, key := range keys {
		state, _, _ := r.Plan.Objects().Planned(r.Resource, key)
		if obj, is := r.decodePlan(state); is {
			objs = append(objs, obj)
		}
	}
	return objs, same
}
