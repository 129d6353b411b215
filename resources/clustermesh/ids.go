// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// ids are the IDs of clusters, of which no two have the same one. It is safe for concurrent use.
type ids struct {
	mu     sync.Mutex
	owners map[uint32]string // names of clusters by ID
}

func newIDs() *ids { return &ids{owners: map[uint32]string{}} }

// claim reserves the ID of a cluster, in place of the one that it had. It fails where that is another's.
func (i *ids) claim(name string, id uint32) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if other, has := i.owners[id]; has && other != name {
		return fmt.Errorf("its ID %d is that of cluster %s: IDs are unique in a mesh", id, other)
	}
	maps.DeleteFunc(i.owners, func(_ uint32, of string) bool { return of == name })
	i.owners[id] = name
	return nil
}

// release frees the ID of a cluster.
func (i *ids) release(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.owners, func(_ uint32, of string) bool { return of == name })
}

// retain frees the IDs of clusters that are not configured.
func (i *ids) retain(isConfigured func(name string) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.owners, func(_ uint32, of string) bool { return !isConfigured(of) })
}

// has reports whether a cluster has an ID.
func (i *ids) has(name string) bool {
	_, has := i.byName()[name]
	return has
}

// adopt gives clusters the IDs that they had in an earlier term, and returns those that have to give way. A cluster that has claimed
// another one since keeps that.
func (i *ids) adopt(kept map[string]uint32) (displaced []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.names()
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		id := kept[name]
		if _, has := now[name]; has || id == 0 {
			continue
		}
		if other := i.owners[id]; other != "" {
			displaced = append(displaced, other)
		}
		i.owners[id] = name
	}
	return displaced
}

// byName are the IDs by the names of their clusters.
func (i *ids) byName() map[string]uint32 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.names()
}

// names is byName for a caller that has the lock.
func (i *ids) names() map[string]uint32 {
	names := map[string]uint32{}
	for id, name := range i.owners {
		names[name] = id
	}
	return names
}
