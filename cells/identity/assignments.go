// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var _ identity.Assignments = (*maker)(nil)

// newAssignments offers what the maker knows to other duties.
func newAssignments(m *maker) identity.Assignments { return m }

// Of implements identity.Assignments.
func (m *maker) Of(pod types.NamespacedName) (identity.Number, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, _ := m.table.pods.Get(slim.Key(pod))
	if p == nil || p.from == nil || p.from.set == nil {
		return 0, false
	}
	return p.from.set.number, p.from.set.exists
}

// Bearers implements identity.Assignments.
func (m *maker) Bearers(n identity.Number) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.table.owners[n]; s != nil {
		return s.pods
	}
	return 0
}

// Complete implements identity.Assignments.
func (m *maker) Complete() <-chan struct{} { return m.complete }

// Observe implements identity.Assignments.
func (m *maker) Observe(see func(types.NamespacedName)) (cancel func()) {
	m.mu.Lock()
	m.table.watched = true
	m.mu.Unlock() // who is told may ask: never hold both locks
	return m.observers.add(see)
}

// observers are those who want to know of changed answers.
type observers struct {
	mu  sync.Mutex // held while they are told
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

func (o *observers) tell(pods []slim.Key) {
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
