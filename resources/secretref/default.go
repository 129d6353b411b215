// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import "sync"

// DefaultKey is the annotation of copies of the default Secret of Ingresses: configurations of Ingresses of all namespaces name these, also when Ingresses are not
// served any more, and options have no default Secret (SEC-23). It begins as the labels of a copy do, which are not copied: that of a Secret has no effect.
const DefaultKey = OwnerPrefix + "default"

// defaults are which objects are the default Secret of Ingresses, or were it when configurations were written that are left. They have a lock of their own: names ask
// for them while they have theirs.
type defaults struct {
	mu      sync.RWMutex
	isKnown bool // there are no others than by options
	all     map[Object]bool
}

// IsDefault reports whether the Secret has the annotation of copies of the default Secret of Ingresses.
func (m *CopyMeta) IsDefault() bool { return m.Annotations.Get(DefaultKey) != "" }

// AddDefault has an object be the default Secret of Ingresses, as an option or the configurations have it that are left.
func (n *Names) AddDefault(of Object) {
	n.defaults.mu.Lock()
	defer n.defaults.mu.Unlock()
	if n.defaults.all == nil {
		n.defaults.all = map[Object]bool{}
	}
	n.defaults.all[of] = true
}

// KnowDefaults has no other object be the default Secret of Ingresses than those before: Ingresses are served, and their configurations are written anew.
func (n *Names) KnowDefaults() {
	n.defaults.mu.Lock()
	defer n.defaults.mu.Unlock()
	n.defaults.isKnown = true
}

// RecallDefault is AddDefault of an object of which a copy has the annotation.
func (n *Names) RecallDefault(of Object) {
	if is, known := n.IsDefault(of); !is && !known {
		n.AddDefault(of)
	}
}

// IsDefault reports whether an object is the default Secret of Ingresses, or was it, and whether it is known that no others are.
func (n *Names) IsDefault(of Object) (is, known bool) {
	n.defaults.mu.RLock()
	defer n.defaults.mu.RUnlock()
	return n.defaults.all[of], n.defaults.isKnown
}

// MayBeDefault reports whether an object that has a name is the default Secret of Ingresses, or, for the zero Object, whether that one may have the name.
func (n *Names) MayBeDefault(name string, of Object) bool {
	n.defaults.mu.RLock()
	defer n.defaults.mu.RUnlock()
	if of != (Object{}) {
		return n.defaults.all[of]
	}
	for o := range n.defaults.all {
		if o.MayHave(name) {
			return true
		}
	}
	return false
}
