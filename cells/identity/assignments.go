// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var _ identity.Assignments = (*controller)(nil)

// newAssignments provides the assignment of pods to other duties.
func newAssignments(c *controller) identity.Assignments { return c }

// ForPod implements identity.Assignments.
func (c *controller) ForPod(pod types.NamespacedName) (identity.Number, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, _ := c.table.pods.Get(slim.Key(pod))
	if p == nil || p.template == nil || p.template.set == nil {
		return 0, false
	}
	return p.template.set.number, p.template.set.exists
}

// All implements identity.Assignments.
func (c *controller) All(pod types.NamespacedName) iter.Seq[identity.Number] {
	return func(yield func(identity.Number) bool) {
		for _, n := range c.numbersOf(slim.Key(pod)) { // without the lock: yield may ask again
			if !yield(n) {
				return
			}
		}
	}
}

func (c *controller) numbersOf(pod slim.Key) (all []identity.Number) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, _ := c.table.pods.Get(pod)
	for ; p != nil && p.template != nil; p = p.next {
		if s := p.template.set; s != nil && s.number != 0 {
			all = append(all, s.number)
		}
	}
	return all
}

// Wanted implements identity.Assignments.
func (c *controller) Wanted(n identity.Number) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.table.owners[n]
	return s != nil && s.pods > 0
}

// Complete implements identity.Assignments.
func (c *controller) Complete() <-chan struct{} { return c.synced }

// Whole implements identity.Assignments.
func (c *controller) Whole() error {
	c.mu.Lock()
	views := slices.Clone(c.sources)
	c.mu.Unlock() // a store has a lock of its own
	var errs []error
	for _, v := range views {
		if keys := v.undecodable(); len(keys) > 0 {
			errs = append(errs, fmt.Errorf("%d objects of kind %s cannot be decoded, pods may have any identity; repair or delete them, at first %q", len(keys), v.kind, keys[0]))
		}
	}
	return errors.Join(errs...)
}

// source is a resource that identities of pods depend on, with its undecodable objects.
type source struct {
	kind        string
	undecodable func() []slim.Key
}

func (c *controller) addSource(v source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources = append(slices.DeleteFunc(c.sources, func(other source) bool { return other.kind == v.kind }), v)
}

// Observe implements identity.Assignments.
func (c *controller) Observe(see func(types.NamespacedName)) (cancel func()) {
	c.mu.Lock()
	c.table.observed = true
	c.mu.Unlock() // observers may call ForPod: never hold both locks
	return c.observers.add(see)
}

// observers are called with pods whose identity changed.
type observers struct {
	mu  sync.Mutex // held during the calls
	all map[*func(types.NamespacedName)]bool
}

func (o *observers) add(see func(types.NamespacedName)) (cancel func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[*func(types.NamespacedName)]bool{}
	}
	o.all[&see] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all, &see)
	}
}

func (o *observers) notify(pods []slim.Key) {
	if len(pods) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for see := range o.all {
		for _, p := range pods {
			(*see)(types.NamespacedName(p))
		}
	}
}
