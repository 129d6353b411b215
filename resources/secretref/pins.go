// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"
)

// pin is in how many configurations of a namespace a name is.
type pin struct {
	by string
	in int
}

// LimitPins has a name that is pinned count only for what configurations of a namespace may mean by it: an object, or, of a name without an owner that is known,
// the zero Object. It is called before anything is pinned. A name that does not count stays with its last owner; nothing else comes of it.
func (n *Names) LimitPins(means func(by, name string, of Object) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.means = means
}

// MayHave reports whether a name is one of those that the copy of an object may be given and that begin as the plain one.
func (o Object) MayHave(name string) bool {
	plain := o.CopyName()
	if !strings.HasPrefix(name, plain[:min(len(plain), maxName-hashLength)]) {
		return false
	}
	return name == plain || slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return name == hashedName(o, i) })
}

// Pin reports that a configuration names a copy, and stays as it is: agents serve what has that name. No object has the name from now on but the one
// that has it already, and those of the namespace of the configuration.
func (n *Names) Pin(namespace, name, by string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addPins(copyName{namespace, name}, by, 1)
}

// Unpin reports that a configuration names a copy no more that it was reported to name.
func (n *Names) Unpin(namespace, name, by string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addPins(copyName{namespace, name}, by, -1)
}

// addPins adds to the number of configurations of a namespace that have a name.
func (n *Names) addPins(at copyName, by string, more int) {
	all := n.pinned[at]
	i := slices.IndexFunc(all, func(p pin) bool { return p.by == by })
	if i < 0 {
		n.pinned[at] = append(slices.Clip(all), pin{by, more})
		return
	}
	if all[i].in += more; all[i].in > 0 {
		return
	}
	if n.pinned[at] = slices.Delete(all, i, i+1); len(n.pinned[at]) == 0 {
		delete(n.pinned, at)
	}
}

// rests are what names configurations of a namespace have beside those that are pinned. Each name is kept as its hash.
type rests struct {
	uses int                              // configurations
	in   map[uint64]int                   // in how many configurations
	cut  map[*func(name string) bool]bool // configurations of which not all names are known; few, since each is large
}

// nameSeed is that of the hashes of names.
var nameSeed = maphash.MakeSeed()

func hashOf(name string) uint64 { return maphash.String(nameSeed, name) }

// PinRest reports that a configuration of a namespace has more names of copies than Pin is called for: those that are given, or, of one with names that are not
// known, those of which has reports that it has them. That is called under a lock, for few configurations of a namespace, and must be fast. They count until unpin is
// called, which goes over names once more.
func (n *Names) PinRest(namespace, by string, names iter.Seq[string], has func(name string) bool) (unpin func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := copyName{namespace, by}
	if n.rests[at] == nil {
		n.rests[at] = &rests{in: map[uint64]int{}, cut: map[*func(string) bool]bool{}}
	}
	of := n.rests[at]
	of.uses++
	if has != nil {
		of.cut[&has] = true
	} else {
		of.add(names, 1)
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if delete(of.cut, &has); has == nil {
			of.add(names, -1)
		}
		if of.uses--; of.uses == 0 {
			delete(n.rests, at)
		}
	}
}

// add adds to the number of configurations that have the names.
func (r *rests) add(names iter.Seq[string], more int) {
	for name := range names {
		hash := hashOf(name)
		if r.in[hash] += more; r.in[hash] == 0 {
			delete(r.in, hash)
		}
	}
}

func (r *rests) have(name string) bool {
	if r.in[hashOf(name)] > 0 {
		return true
	}
	for has := range r.cut {
		if (*has)(name) {
			return true
		}
	}
	return false
}

// Keep reports that a configuration names a copy: what has that name keeps it, also if nothing refers to it any more. Without an owner, any object may have it.
func (n *Names) Keep(namespace, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept[copyName{namespace, name}]++
}

// Unkeep reports that a configuration names a copy no more that was reported by Keep.
func (n *Names) Unkeep(namespace, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := copyName{namespace, name}
	if n.kept[at]--; n.kept[at] == 0 {
		delete(n.kept, at)
	}
}

// IsNamed reports whether a configuration has a name.
func (n *Names) IsNamed(namespace, name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.isNamed(copyName{namespace, name})
}

func (n *Names) isNamed(at copyName) bool {
	return n.kept[at] > 0 || n.isPinned(at, n.lastOwner(at))
}

// isPinned reports whether a configuration has a name that stays as it is, and may mean an object by it.
func (n *Names) isPinned(at copyName, of Object) bool {
	return n.isPinnedBy(at, func(by string) bool { return n.means(by, at.name, of) })
}

// isPinnedBy reports whether a configuration has a name, of one of the namespaces that count. It is asked for each name that is given or freed, while all others wait: what it
// costs does not depend on how many configurations a namespace has.
func (n *Names) isPinnedBy(at copyName, counts func(by string) bool) bool {
	if slices.ContainsFunc(n.pinned[at], func(p pin) bool { return counts(p.by) }) {
		return true
	}
	for in, rest := range n.rests {
		if in.namespace == at.namespace && rest.have(at.name) && counts(in.name) {
			return true
		}
	}
	return false
}

// wasGiven reports whether a configuration has a name that is the object's alone, and that an earlier leader has given it.
func (n *Names) wasGiven(at copyName, of Object) bool { return n.kept[at] > 0 || n.isPinned(at, of) }

// isHeld reports whether a name stays with its last owner: a configuration has it, whatever that may mean. Of one with too many names it has to mean its owner.
func (n *Names) isHeld(at copyName) bool {
	return n.kept[at] > 0 || len(n.pinned[at]) > 0 || n.isPinned(at, n.lastOwner(at))
}

// NamespacesOf are the namespaces of which an object may have a plain name, or one with a hash: what is before each of its dashes.
func NamespacesOf(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range len(name) {
			if name[i] == '-' && !yield(name[:i]) {
				return
			}
		}
	}
}

func (n *Names) lastOwner(at copyName) (of Object) {
	if has := n.owners[at]; has != nil {
		of = has.of
	}
	return of
}

func (n *Names) pinnedOf(namespace string, o Object) (name string, is bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, at := range n.held[o] {
		if at.namespace == namespace && n.isPinned(at, o) && (!is || at.name < name) {
			name, is = at.name, true
		}
	}
	return name, is
}

// mayMeanOthers reports whether a configuration of another namespace than an object's has a name that has no owner, and that may be the plain one of another
// object. A hidden name is that of the one object whose hash it has.
func (n *Names) mayMeanOthers(at copyName, o Object) bool {
	if n.owners[at] != nil && n.owners[at].released.IsZero() || !isComputed(at.name) {
		return false
	}
	return n.isPinnedBy(at, func(by string) bool { return by != o.Namespace && n.means(by, at.name, Object{}) })
}
