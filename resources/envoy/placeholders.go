// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

const (
	// roleLimit is how long nothing is decided because the role has not been read, which takes some milliseconds.
	roleLimit = 10 * time.Second
	rolePause = 100 * time.Millisecond
	// roleInterval is how often it is looked whether another way is allowed by now, by what the API server told last.
	roleInterval = 5 * time.Second
)

// way is as which kind of object placeholders are written.
type way int

const (
	noWay way = iota // the role allows neither
	bySlice
	byEndpoints
)

// decision is what is done with both kinds.
type decision struct {
	way
	removesOther bool
}

// uses reports whether objects of a kind are written or removed.
func (d decision) uses(kind way) bool {
	return d.way == kind || d.way != noWay && d.removesOther
}

// role is what the API server tells that is allowed, as k8s.Permissions has it.
type role interface {
	Allows(verb string, ref k8s.Ref) bool
	Known() bool
}

// The verbs that are needed. Only what can be watched is written or removed.
var (
	writeVerbs  = []string{"list", "watch", "get", "create", "update", "delete"}
	removeVerbs = []string{"list", "watch", "delete"}
)

// decide decides by what the role allows: EndpointSlices before Endpoints, which charts allow up to 1.19. known is false while the
// role may allow more than it tells; then EndpointSlices, which are allowed by all roles of ours, are the best guess.
func decide(r role) (d decision, known bool) {
	switch {
	case allowsAll(r, sliceResource, writeVerbs):
		return decision{bySlice, allowsAll(r, endpointsResource, removeVerbs)}, true
	case allowsAll(r, endpointsResource, writeVerbs):
		return decision{byEndpoints, allowsAll(r, sliceResource, removeVerbs)}, true
	case r.Known():
		return decision{}, true
	}
	return decision{way: bySlice}, false
}

func allowsAll(r role, resource schema.GroupVersionResource, verbs []string) bool {
	for _, verb := range verbs {
		if !r.Allows(verb, k8s.Ref{Resource: resource}) {
			return false
		}
	}
	return true
}

// PlaceholderRBAC are the permissions for placeholders. Of both kinds the one is used that the role has.
var PlaceholderRBAC = k8s.OptionalRBAC(
	k8s.Allow("get,create,update,delete", sliceResource.GroupResource()),
	k8s.Allow("get,create,update,delete", endpointsResource.GroupResource()),
)

// DeniesSlices reports whether it is known that EndpointSlices may not be written.
func DeniesSlices(r *k8s.Permissions) bool {
	return r.Known() && !allowsAll(r, sliceResource, writeVerbs)
}

// Placeholders has the kinds of placeholders watched that the role allows to write or to remove. The controller of the duty D
// watches Slices and Endpoints on demand, and has Follow followed. Its methods are safe for concurrent use.
type Placeholders[D any] struct {
	Slices    reconcile.OnDemand[Slice[D]]
	Endpoints reconcile.OnDemand[Endpoints[D]]

	byController *stream.Index[Slice[D], slim.UID]

	role   role
	health health.Reporter
	began  time.Time

	mu       sync.Mutex
	keys     map[slim.Key]decision // of those that need placeholders
	reported *decision             // what health says, nil for nothing
}

// NewPlaceholders returns the placeholders of a duty. Its health says as what they are written.
func NewPlaceholders[D any](r *k8s.Permissions, h health.Reporter) *Placeholders[D] {
	return newPlaceholders[D](r, h)
}

func newPlaceholders[D any](r role, h health.Reporter) *Placeholders[D] {
	return &Placeholders[D]{
		byController: stream.NewIndex("controller", func(s *Slice[D], add func(slim.UID)) {
			if !s.Controller.IsZero() {
				add(s.Controller.Reference().UID)
			}
		}),
		role: r, health: h.Child("placeholders"), began: time.Now(), keys: map[slim.Key]decision{},
	}
}

// Need returns the placeholders for the Reconcile of a key, which has them watched until Drop. It returns nil while those of the
// kind that is written are not known: nothing is to be written before, and the key is reconciled again when they are, or is to be
// after the pause, if any. Those of the other kind are not waited for: the key is reconciled again when they are known.
func (p *Placeholders[D]) Need(key slim.Key) (placed *Placed[D], pause time.Duration) {
	d, ok := p.decide()
	if !ok {
		return nil, rolePause
	}
	p.record(key, d)
	placed = &Placed[D]{
		of: p, as: d,
		slices:    need(&p.Slices, key, d.uses(bySlice)),
		endpoints: need(&p.Endpoints, key, d.uses(byEndpoints)),
	}
	if d.way == bySlice && placed.slices == nil || d.way == byEndpoints && placed.endpoints == nil {
		return nil, 0
	}
	return placed, 0
}

// decide decides by the role. ok is false while it is waited for.
func (p *Placeholders[D]) decide() (d decision, ok bool) {
	d, known := decide(p.role)
	return d, known || time.Since(p.began) >= roleLimit
}

// need has a kind watched for a key, or not. The store is nil while it is not complete.
func need[T any](kind *reconcile.OnDemand[T], key slim.Key, needed bool) *stream.Store[T] {
	if needed {
		return kind.Need(key)
	}
	kind.Drop(key)
	return nil
}

// Drop takes back Need, if there was any.
func (p *Placeholders[D]) Drop(key slim.Key) {
	p.forget(key)
	p.Slices.Drop(key)
	p.Endpoints.Drop(key)
}

func (p *Placeholders[D]) forget(key slim.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.keys, key)
	if len(p.keys) == 0 && p.reported != nil {
		p.health.Remove()
		p.reported = nil
	}
}

// record keeps what was decided for a key, and reports it if it is something else than before.
func (p *Placeholders[D]) record(key slim.Key, d decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[key] = d
	if p.reported == nil || *p.reported != d {
		p.reported = &d
		d.report(p.health)
	}
}

// report says in health as what placeholders are written.
func (d decision) report(h health.Reporter) {
	switch d.way {
	case bySlice:
		h.OK("written as EndpointSlices")
	case byEndpoints:
		h.OK("written as Endpoints: the role does not allow EndpointSlices")
	default:
		h.Degraded("the role allows to write neither EndpointSlices nor Endpoints: Services of load balancers are without any, and agents up to 1.17 do not serve them", nil)
	}
}

// Follow has the keys that need placeholders reconciled when the role allows another way than before.
func (p *Placeholders[D]) Follow(ctx context.Context, enqueue reconcile.Enqueue) {
	for job.Sleep(ctx, roleInterval) {
		for _, key := range p.outdated() {
			enqueue(key)
		}
	}
}

// outdated are the keys for which another way was decided than would be now.
func (p *Placeholders[D]) outdated() (keys []slim.Key) {
	now, ok := p.decide()
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, was := range p.keys {
		if ok && was != now {
			keys = append(keys, key)
		}
	}
	return keys
}

// isOutdated reports whether something else would be decided now.
func (p *Placeholders[D]) isOutdated(was decision) bool {
	now, ok := p.decide()
	return ok && was != now
}
