// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import "iter"

// KeyMap is a map by [Key] for many objects: as it has a map for each namespace,
// it keeps no namespace for each object, and takes half the memory of a map[Key]V
// of pointers. The zero KeyMap is empty. Like a map, it may be changed
// while All yields, and is not safe for concurrent use otherwise.
type KeyMap[V any] struct {
	namespaces map[string]map[string]V
	size       int
}

// Len returns the number of keys.
func (m *KeyMap[V]) Len() int { return m.size }

// Get returns the value of key, and whether there is one.
func (m *KeyMap[V]) Get(key Key) (v V, ok bool) {
	v, ok = m.namespaces[key.Namespace][key.Name]
	return v, ok
}

// Set makes v the value of key.
func (m *KeyMap[V]) Set(key Key, v V) {
	names := m.namespaces[key.Namespace]
	if names == nil {
		if m.namespaces == nil {
			m.namespaces = map[string]map[string]V{}
		}
		names = map[string]V{}
		m.namespaces[key.Namespace] = names
	}
	before := len(names)
	names[key.Name] = v
	m.size += len(names) - before
}

// Delete removes key, if it is there.
func (m *KeyMap[V]) Delete(key Key) {
	names := m.namespaces[key.Namespace]
	before := len(names)
	delete(names, key.Name)
	m.size += len(names) - before
	if len(names) == 0 {
		delete(m.namespaces, key.Namespace)
	}
}

// All yields all keys and their values, in no order.
func (m *KeyMap[V]) All() iter.Seq2[Key, V] {
	return func(yield func(Key, V) bool) {
		for namespace, names := range m.namespaces {
			for name, v := range names {
				if !yield(Key{Namespace: namespace, Name: name}, v) {
					return
				}
			}
		}
	}
}
