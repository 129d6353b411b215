// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// Names gives the copies of objects their names, so that no two objects have one name: a configuration that names a copy names that
// of the object which it means, or none. An object has the plain name, which agents compute for network policies, unless another
// one has it; then it has one with a hash. What was answered once stays, until the object is released. It is safe for concurrent
// use, and for one term (SEC-14).
type Names struct {
	now func() time.Time
	// hides reports whether no object but one of a network policy has the plain name in a namespace (SEC-15).
	hides func(namespace string) bool
	known chan struct{}
	once  sync.Once

	mu     sync.Mutex
	owners map[copyName]*owner
	held   map[Object][]copyName // the names of an owner, few; not those of other writers
	names  map[copyOf]string     // what was answered
	freed  []release             // in that order, but for those that are held
	// pinned are the names that configurations have: few of one name, mostly one.
	pinned map[copyName][]pin
	// rests are the names that are too many for that, by the namespaces of the copies and of the configurations.
	rests map[copyName]*rests
	// means reports whether configurations of a namespace may mean an object by a name, or what has none of an owner that is known: the zero Object.
	means func(by, name string, of Object) bool
	// defaults are what configurations of Ingresses of all namespaces may mean.
	defaults defaults
	// kept is in how many configurations a name is that the next leader begins with, and that is written anew then: its owner keeps it until it is in none.
	kept map[copyName]int
}

// copyName is a name in a namespace of copies, and copyOf an object that is copied there.
type copyName struct{ namespace, name string }

type copyOf struct {
	namespace string
	of        Object
}

// owner is who has a name. A Secret that is no copy has the zero Object.
type owner struct {
	of       Object
	released time.Time // zero while it is in use
}

// release is when a name was released.
type release struct {
	of copyName
	at time.Time
}

// reuse is how long a name stays without an owner: what is about to be written with it is, or is written anew. As long as a configuration has it, it stays.
const reuse = time.Minute

// NewNames returns names of which none is given yet.
func NewNames() *Names {
	return &Names{
		now: time.Now, hides: func(string) bool { return false }, means: func(string, string, Object) bool { return true }, known: make(chan struct{}),
		owners: map[copyName]*owner{}, held: map[Object][]copyName{}, names: map[copyOf]string{},
		pinned: map[copyName][]pin{}, rests: map[copyName]*rests{}, kept: map[copyName]int{},
	}
}

// NamesOf returns names, as options have them, of which none is given yet.
func NamesOf(c Config) *Names {
	n := NewNames()
	n.hides = func(namespace string) bool {
		return c.PolicySecretsOwnNamespaceOnly && OfPolicies(c) && namespace == c.PolicySecretsNamespace
	}
	return n
}

// Known returns a channel that is closed once the copies that exist have their names. Before that, no name is to be asked for.
func (n *Names) Known() <-chan struct{} { return n.known }

// MarkKnown is called once all copies that exist were reported by Exists.
func (n *Names) MarkKnown() { n.once.Do(func() { close(n.known) }) }

// AwaitIn returns the names in a namespace, as translations ask for them, once the copies that exist are known: without them an object could be
// served with the copy of another. made says whether the objects of the translation are copied there: without, they have the copies that exist
// alone. The error is that of ctx.
func (n *Names) AwaitIn(ctx context.Context, namespace string, made bool) (envoy.CopyNames, error) {
	end := health.ReportBlocked(ctx, "copies", "nothing is translated before the copies of secrets in namespace "+namespace+" are known: let the operator list and watch secrets")
	defer end()
	select {
	case <-n.known:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !made {
		return existing{n, namespace}, nil
	}
	return namesIn{n, namespace}, nil
}

// Exists reports a Secret in a namespace of copies: the copy of an object, or a Secret of another writer, which is the zero Object.
func (n *Names) Exists(namespace, name string, of Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, key := copyName{namespace, name}, copyOf{namespace, of}
	if has := n.owners[at]; has != nil && has.of != of && has.released.IsZero() && has.of != (Object{}) {
		return // who was given the name keeps it; the Secret is not written then
	}
	n.give(at, of)
	if was, answered := n.names[key]; of != (Object{}) && (!answered || !n.isKnown() && n.isBetter(namespace, of, name, was)) {
		n.names[key] = name
	}
}

// isBetter reports whether an object with copies of two names goes on with the first: configurations have it, or it is the plain one.
func (n *Names) isBetter(namespace string, of Object, name, than string) bool {
	if is := n.isNamed(copyName{namespace, name}); is != n.isNamed(copyName{namespace, than}) {
		return is
	}
	return name == of.CopyName()
}

func (n *Names) isKnown() bool {
	select {
	case <-n.known:
		return true
	default:
		return false
	}
}

// Gone reports that a Secret is gone that was of another writer.
func (n *Names) Gone(namespace, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if has := n.owners[copyName{namespace, name}]; has != nil && has.of == (Object{}) {
		n.free(copyName{namespace, name})
	}
}

// Of returns the name of the copy of an object in a namespace, and gives it to the object.
func (n *Names) Of(namespace string, o Object) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := copyOf{namespace, o}
	hides := n.hides(namespace)
	if name, answered := n.names[key]; answered && !(hides && isComputed(name)) {
		n.give(copyName{namespace, name}, o)
		return name
	}
	name, another := o.CopyName(), hashedName
	if hidden := hiddenName(o, 0); hides || n.wasGiven(copyName{namespace, hidden}, o) {
		name, another = hidden, hiddenName
	}
	for i := 0; len(name) > maxName || !n.assign(copyName{namespace, name}, o); i++ {
		if n.mayMeanOthers(copyName{namespace, name}, o) {
			another = hiddenName // which the next leader finds again, and gives to this object alone
		}
		name = another(o, i)
	}
	n.names[key] = name
	return name
}

// Kept returns the name of an object in a namespace that a configuration has, by Pin, or gives it one as Of does.
func (n *Names) Kept(namespace string, o Object) string {
	if name, is := n.pinnedOf(namespace, o); is {
		return name
	}
	return n.Of(namespace, o)
}

// Hides reports whether no object but one of a network policy has a name in a namespace that a policy may name.
func (n *Names) Hides(namespace string) bool { return n.hides(namespace) }

// Plain gives an object the plain name of its copy, and reports whether it has it.
func (n *Names) Plain(namespace string, o Object) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.assign(copyName{namespace, o.CopyName()}, o)
}

// Has reports whether an object has a name in a namespace: it has a copy there, or something has asked for its name.
func (n *Names) Has(namespace string, o Object) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.held[o], func(at copyName) bool { return at.namespace == namespace && n.owners[at].released.IsZero() })
}

// Owner returns whose copy has a name in a namespace.
func (n *Names) Owner(namespace, name string) (of Object, isCopy bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if has := n.owners[copyName{namespace, name}]; has != nil && has.released.IsZero() {
		of = has.of
	}
	return of, of != (Object{})
}

// LastOwner returns whose copy has a name in a namespace, or had it last: what still has the name means that.
func (n *Names) LastOwner(namespace, name string) (of Object, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of = n.lastOwner(copyName{namespace, name})
	return of, of != (Object{})
}

// assign gives a name to an object unless another one has it, or a configuration may mean another one by it.
func (n *Names) assign(at copyName, o Object) bool {
	has := n.owners[at]
	switch {
	case has != nil && has.of == o:
	case has != nil && (has.released.IsZero() || n.isHeld(at) || n.now().Sub(has.released) < reuse):
		return false
	case n.mayMeanOthers(at, o):
		return false
	}
	n.give(at, o)
	return true
}

// give makes an object the owner of a name, which is in use then.
func (n *Names) give(at copyName, o Object) {
	if has := n.owners[at]; has != nil && has.of == o {
		has.released = time.Time{}
		return
	}
	n.free(at)
	n.owners[at] = &owner{of: o}
	if o != (Object{}) {
		n.held[o] = append(n.held[o], at)
	}
}

// free takes a name from its owner.
func (n *Names) free(at copyName) {
	has := n.owners[at]
	if has == nil {
		return
	}
	delete(n.owners, at)
	if n.held[has.of] = slices.DeleteFunc(n.held[has.of], func(a copyName) bool { return a == at }); len(n.held[has.of]) == 0 {
		delete(n.held, has.of)
	}
}

// Release takes the names from an object that nothing refers to any more, and that has no copy.
func (n *Names) Release(o Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	for _, at := range n.held[o] {
		if has := n.owners[at]; has.released.IsZero() {
			has.released = now
			n.freed = append(n.freed, release{at, now})
			delete(n.names, copyOf{at.namespace, o})
		}
	}
	for range min(len(n.freed), mostFreed) {
		next := n.freed[0]
		if now.Sub(next.at) < reuse {
			return
		}
		n.freed = n.freed[1:]
		switch has := n.owners[next.of]; {
		case has == nil, !has.released.Equal(next.at): // another one has it, or this one again, or it was released again
		case n.isHeld(next.of):
			n.freed = append(n.freed, next)
		default:
			n.free(next.of)
		}
	}
}

// mostFreed is how many names are tried to be forgotten at a time: a configuration may hold any number of them, and to forget them is for the memory alone.
const mostFreed = 10

type namesIn struct {
	names     *Names
	namespace string
}

// SecretCopy implements envoy.CopyNames.
func (n namesIn) SecretCopy(s envoy.Name) string {
	return n.names.Of(n.namespace, Object{Secret, slim.Key(s)})
}

// ConfigMapCopy implements envoy.CopyNames.
func (n namesIn) ConfigMapCopy(s envoy.Name) string {
	return n.names.Of(n.namespace, Object{ConfigMap, slim.Key(s)})
}

// existing are the names in a namespace where other objects are copied to.
type existing namesIn

// SecretCopy implements envoy.CopyNames.
func (e existing) SecretCopy(s envoy.Name) string {
	return e.names.existing(e.namespace, Object{Secret, slim.Key(s)})
}

// ConfigMapCopy implements envoy.CopyNames.
func (e existing) ConfigMapCopy(s envoy.Name) string {
	return e.names.existing(e.namespace, Object{ConfigMap, slim.Key(s)})
}

// noCopy ends names that no Secret can have.
const noCopy = "-"

// existing is the name of the copy that an object has, or the plain one if a Secret of another writer has that: it was made for the object. Any other
// name could be that of another object's copy, now or later.
func (n *Names) existing(namespace string, o Object) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, has := n.names[copyOf{namespace, o}]; has {
		return name
	}
	if has := n.owners[copyName{namespace, o.CopyName()}]; has != nil && has.of == (Object{}) {
		return o.CopyName()
	}
	return o.CopyName() + noCopy
}

// maxName is the length of the longest name of a Secret.
const maxName = 253

// hashedName is the i-th name with a hash.
func hashedName(o Object, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d", o.Kind, o.Namespace, o.Name, i))
	hash := "-" + hex.EncodeToString(sum[:])[:12]
	plain := o.CopyName()
	return plain[:min(len(plain), maxName-hashLength)] + hash
}

// hashLength is that of what hashedName appends.
const hashLength = 1 + 12

// hiddenName is the i-th name that agents compute for no network policy, whatever it refers to: what they compute has a dash.
func hiddenName(o Object, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d", o.Kind, o.Namespace, o.Name, i))
	return "copy" + hex.EncodeToString(sum[:])
}

// isComputed reports whether agents may compute a name for a network policy.
func isComputed(name string) bool { return strings.Contains(name, "-") }
