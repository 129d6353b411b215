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
func (r *Reflector[T]) followPlan() (stop func()) {
	return r.Plan.Objects().Follow(r.Resource, func(key slim.Key) {
		r.changes.Lock()
		defer r.changes.Unlock()
		r.updatePlanned(key)
	})
}

// updatePlanned sets the planned state of an object, with the lock held. Before the
// initial state is complete, mergePlan does.
func (r *Reflector[T]) updatePlanned(key slim.Key) {
	state, base, held := r.Plan.Objects().Planned(r.Resource, key)
	c := r.changes
	switch obj := c.Current(key); {
	case !c.IsSynced():
		return
	case !held:
		// The server's state holds, which this stream has not kept.
		r.relists.add()
		return
	case obj != nil && !dryrun.IsPlanned(slim.MetaOf(obj).ResourceVersion.String()) && uint64(slim.MetaOf(obj).ResourceVersion) > base:
		r.isPlanned(slim.MetaOf(obj))
	}
	if obj := r.decodePlan(state); obj != nil {
		c.Put(obj)
		c.Advance(0) // for those who wait for this object
	} else {
		c.Remove(key, 0)
	}
}

// decodePlan is a planned object as the stream keeps it, nil if it is not one of
// those that the stream has.
func (r *Reflector[T]) decodePlan(state *unstructured.Unstructured) *T {
	if state == nil {
		return nil
	}
	selected, err := dryrun.SelectorOf(r.Namespace, r.Labels, r.Fields)
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
	case *metadataOnly:
		r.changes.MarkUnreadable(slim.Key{Namespace: state.GetNamespace(), Name: state.GetName()}, obj.err)
	}
	return nil
}

// isPlanned reports whether the plan's state of an object is shown in place of a
// state of the server.
func (r *Reflector[T]) isPlanned(server *slim.Meta) bool {
	return r.Plan.Objects().Newer(r.Resource, server.Key(), uint64(server.ResourceVersion))
}

// mergePlan puts planned states in place of those of a complete state of the
// server.
func (r *Reflector[T]) mergePlan(objs []*T, same []slim.Key) ([]*T, []slim.Key) {
	keys := r.Plan.Objects().Keys(r.Resource)
	if len(keys) == 0 {
		return objs, same
	}
	held := map[slim.Key]bool{}
	for _, key := range keys {
		held[key] = true
	}
	objs = slices.DeleteFunc(objs, func(obj *T) bool { return r.isPlanned(slim.MetaOf(obj)) })
	same = slices.DeleteFunc(same, func(key slim.Key) bool { return held[key] })
	for _, key := range keys {
		state, _, _ := r.Plan.Objects().Planned(r.Resource, key)
		if obj := r.decodePlan(state); obj != nil {
			objs = append(objs, obj)
		}
	}
	return objs, same
}
