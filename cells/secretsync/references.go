// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/secretref"
)

// reference is an object that refers to another one, and its source. As a key it has no uid: an object that is replaced is the same
// one with other references.
type reference struct {
	source string
	from   corev1.ObjectReference
}

func (r reference) key() reference {
	r.from.UID, r.from.ResourceVersion = "", ""
	return r
}

// references are what refers to what. It is safe for concurrent use.
type references struct {
	mu    sync.Mutex
	to    map[reference][]secretref.Object
	uids  map[reference]types.UID
	from  map[secretref.Object]map[reference]bool
	named map[string]map[secretref.Object]bool // by the name of their copies
	// unknown are those of which nothing is known, not even what they referred to before. unknownIn counts them by namespace.
	unknown   map[reference]bool
	unknownIn map[string]int
}

func newReferences() *references {
	return &references{
		to: map[reference][]secretref.Object{}, uids: map[reference]types.UID{},
		from: map[secretref.Object]map[reference]bool{}, named: map[string]map[secretref.Object]bool{},
		unknown: map[reference]bool{}, unknownIn: map[string]int{},
	}
}

// set replaces what an object refers to. It returns the objects to which a reference came or went.
func (r *references) set(from reference, to []secretref.Object) (added, removed []secretref.Object) {
	uid := from.from.UID
	from = from.key()
	to = slices.Clone(to)
	slices.SortFunc(to, compareObjects)
	to = slices.Compact(to)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setUnknown(from, false)
	for _, of := range r.to[from] {
		if _, stays := slices.BinarySearchFunc(to, of, compareObjects); !stays {
			removed = append(removed, of)
			r.remove(from, of)
		}
	}
	for _, of := range to {
		if !r.from[of][from] {
			added = append(added, of)
			r.add(from, of)
		}
	}
	if r.to[from], r.uids[from] = to, uid; len(to) == 0 {
		delete(r.to, from)
		delete(r.uids, from)
	}
	return added, removed
}

// setUnknown records whether nothing is known of an object. The caller has the lock.
func (r *references) setUnknown(from reference, is bool) {
	switch {
	case is == r.unknown[from]:
	case is:
		r.unknown[from] = true
		r.unknownIn[from.from.Namespace]++
	default:
		delete(r.unknown, from)
		if r.unknownIn[from.from.Namespace]--; r.unknownIn[from.from.Namespace] == 0 {
			delete(r.unknownIn, from.from.Namespace)
		}
	}
}

// isUnknown says that it is not known what an object refers to. It keeps what it was set to, if that is anything.
func (r *references) isUnknown(from reference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from = from.key(); len(r.to[from]) == 0 {
		r.setUnknown(from, true)
	}
}

// mayBeTo reports whether an object of which nothing is known may refer to another one. named says that a CiliumEnvoyConfig names the copy.
func (r *references) mayBeTo(of secretref.Object, named bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unknownIn[of.Namespace] > 0 || named && len(r.unknown) > 0
}

func (r *references) add(from reference, of secretref.Object) {
	if r.from[of] == nil {
		r.from[of] = map[reference]bool{}
	}
	r.from[of][from] = true
	if r.named[of.CopyName()] == nil {
		r.named[of.CopyName()] = map[secretref.Object]bool{}
	}
	r.named[of.CopyName()][of] = true
}

func (r *references) remove(from reference, of secretref.Object) {
	if delete(r.from[of], from); len(r.from[of]) > 0 {
		return
	}
	delete(r.from, of)
	name := of.CopyName()
	if delete(r.named[name], of); len(r.named[name]) == 0 {
		delete(r.named, name)
	}
}

// has reports whether an object is referred to.
func (r *references) has(of secretref.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.from[of]) > 0
}

// of are the references to an object, in their order.
func (r *references) of(object secretref.Object) []reference {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.SortedFunc(maps.Keys(r.from[object]), compareReferences)
	for i, ref := range all {
		all[i].from.UID = r.uids[ref]
	}
	return all
}

// byCopy are the objects that are referred to and whose copies have a name.
func (r *references) byCopy(name string) []secretref.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.named[name]), compareObjects)
}
