// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Key names an object of a resource.
type Key = cache.ObjectName

// Objects is the overlay of the Kubernetes API: objects as they would be after
// the writes planned so far. It is safe for concurrent use.
//
// The server's state of an object is read once, at its first write. When another
// writer has changed it on the server, the planned changes are applied to the newer
// state; if it was deleted or replaced there, the server's state holds.
//
// Defaults, validation, admission and garbage collection of a server are not
// planned. CRDs are established at once.
type Objects struct {
	plan *Plan

	reads     atomic.Int64 // under way
	rebasings atomic.Int64

	mu        sync.Mutex
	version   uint64 // the last one that was given to an object
	created   uint64
	planned   map[schema.GroupVersionResource]map[Key]*object
	seen      map[place]*unstructured.Unstructured // as modules read them, and have not written them
	followers map[schema.GroupVersionResource][]*follower
	noStatus  map[schema.GroupResource]bool // whether a kind has no subresource of its status
}

// place is where an object is.
type place struct {
	resource schema.GroupVersionResource
	key      Key
}

// object is a planned object.
type object struct {
	origin origin
	base   *unstructured.Unstructured // the server's state, nil if it has none
	state  *unstructured.Unstructured // nil: deleted
	moving bool                       // it is being brought to a newer base
}

// origin is how an object is read from the server.
type origin struct {
	server http.RoundTripper
	url    url.URL // of the object
	header http.Header
}

type follower struct{ changed func(Key) }

// firstVersion is where planned resourceVersions begin: beyond all of a server,
// and with no more digits than readers of numbers take.
const firstVersion = 1 << 62

func newObjects(p *Plan) *Objects {
	return &Objects{
		plan: p, version: firstVersion,
		planned:   map[schema.GroupVersionResource]map[Key]*object{},
		seen:      map[place]*unstructured.Unstructured{},
		followers: map[schema.GroupVersionResource][]*follower{},
		noStatus:  map[schema.GroupResource]bool{},
	}
}

// IsPlanned reports whether a resourceVersion is that of a planned state.
func IsPlanned(resourceVersion string) bool {
	return versionOf(resourceVersion) >= firstVersion
}

func versionOf(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

func keyOf(u *unstructured.Unstructured) Key {
	return Key{Namespace: u.GetNamespace(), Name: u.GetName()}
}

// Follow calls changed, with no lock held, when the planned state of an object
// of a resource has changed, until stop is called. A nil overlay never calls.
func (o *Objects) Follow(resource schema.GroupVersionResource, changed func(Key)) (stop func()) {
	if o == nil {
		return func() {}
	}
	f := &follower{changed}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.followers[resource] = append(o.followers[resource], f)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.followers[resource] = slices.DeleteFunc(slices.Clone(o.followers[resource]), func(other *follower) bool { return other == f })
	}
}

func (o *Objects) notify(at place) {
	o.plan.Moved()
	o.mu.Lock()
	followers := slices.Clone(o.followers[at.resource])
	o.mu.Unlock()
	for _, f := range followers {
		f.changed(at.key)
	}
}

// Planned is the planned state of an object, which is nil for one deleted. held
// is false where the server's state holds. base is the resourceVersion of the
// server's state that it was made of, 0 for none. The object must not be changed.
func (o *Objects) Planned(resource schema.GroupVersionResource, key Key) (state *unstructured.Unstructured, base uint64, held bool) {
	if o == nil {
		return nil, 0, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	obj := o.planned[resource][key]
	if obj == nil {
		return nil, 0, false
	}
	return obj.state, obj.baseVersion(), true
}

func (obj *object) baseVersion() uint64 {
	if obj.base == nil {
		return 0
	}
	return versionOf(obj.base.GetResourceVersion())
}

// Keys are the keys of a resource of which the plan holds the state.
func (o *Objects) Keys(resource schema.GroupVersionResource) []Key {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := make([]Key, 0, len(o.planned[resource]))
	for key := range o.planned[resource] {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b Key) int { return compareKeys(a, b) })
	return keys
}

// Defines reports whether a CustomResourceDefinition is planned to be there.
func (o *Objects) Defines(name string) bool {
	state, _, _ := o.Planned(definitions, Key{Name: name})
	return state != nil
}

// serves reports whether a planned definition serves a resource.
func (o *Objects) serves(resource schema.GroupVersionResource) bool {
	state, _, _ := o.Planned(definitions, Key{Name: resource.GroupResource().String()})
	if state == nil {
		return false
	}
	versions, _, _ := unstructured.NestedSlice(state.Object, "spec", "versions")
	return slices.ContainsFunc(versions, func(v any) bool {
		version, _ := v.(map[string]any)
		return version["name"] == resource.Version && version["served"] == true
	})
}

// Gone says that the server does not have an object any more that the plan
// holds. It reports whether that is news: one that is planned to be deleted, or
// was created by the plan, is not expected to be there.
func (o *Objects) Gone(resource schema.GroupVersionResource, key Key) bool {
	if o == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	obj := o.planned[resource][key]
	if obj == nil {
		return true
	}
	if obj.base == nil {
		return false
	}
	delete(o.planned[resource], key)
	return true
}

// Newer says that the server has a state of an object that the plan holds. It
// reports whether the plan's state is to be shown in its place. If the server's
// is newer than what that was made of, it is being made anew.
func (o *Objects) Newer(resource schema.GroupVersionResource, key Key, version uint64) (held bool) {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	obj := o.planned[resource][key]
	if obj == nil {
		return false
	}
	if version > obj.baseVersion() && !obj.moving && obj.origin.server != nil {
		obj.moving = true
		o.rebasings.Add(1)
		go o.rebase(place{resource, key}, obj.origin)
	}
	return true
}

const rebaseLimit = 30 * time.Second

// rebase makes what the plan changed in an object a change of the server's
// newest state.
func (o *Objects) rebase(at place, from origin) {
	defer o.rebasings.Add(-1)
	defer o.notify(at)
	ctx, cancel := context.WithTimeout(context.Background(), rebaseLimit)
	defer cancel()
	current, err := o.fetch(ctx, from)
	o.mu.Lock()
	defer o.mu.Unlock()
	obj := o.planned[at.resource][at.key]
	if obj == nil {
		return
	}
	obj.moving = false
	if err != nil {
		return // the plan goes on with what it has
	}
	same := current != nil && obj.base != nil && current.GetUID() == obj.base.GetUID()
	if !same {
		delete(o.planned[at.resource], at.key)
		return
	}
	if obj.state == nil { // still to be deleted
		obj.base = current
		return
	}
	moved, err := changeAlike(obj.base, obj.state, current)
	if err != nil {
		delete(o.planned[at.resource], at.key)
		return
	}
	obj.base, obj.state = current, moved
	obj.state.SetResourceVersion(o.nextVersion())
}

// nextVersion is called with the lock held.
func (o *Objects) nextVersion() string {
	o.version++
	return strconv.FormatUint(o.version, 10)
}

func (o *Objects) load() Load {
	var l Load
	if n := o.reads.Load(); n > 0 {
		l.Busy = append(l.Busy, "requests to the API server: "+strconv.FormatInt(n, 10))
	}
	if o.rebasings.Load() > 0 {
		l.Busy = append(l.Busy, "objects that others changed meanwhile")
	}
	return l
}
