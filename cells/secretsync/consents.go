// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

var consenting = cell.Module("consents", "Reads what lets the configurations of Gateways refer to Secrets of other namespaces, where those of Gateways are not copied",
	cell.EnabledBy(cell.When("secrets are copied where those of Gateways or Ingresses were, and none of Gateways are", flags, secretref.NamedWithoutGateways)),
	k8s.OptionalRBAC(
		k8s.Allow("list,watch", setKind.Resource().GroupResource()),
		k8s.Allow("list,watch", grantKind.Resource().GroupResource()),
	),
	stream.Provide(setKind, stream.OnDemand(), quiet), stream.Provide(grantKind, stream.OnDemand(), quiet),
)

// consents are to which Secrets of other namespaces the configurations of Gateways of a namespace may refer: a ReferenceGrant there lets them, or a ListenerSet
// there is at a Gateway of theirs. What a configuration says of itself, its owner and its names, a tenant can write (SEC-22).
type consents struct {
	permissions role
	grants      consentWatch[referenceGrant]
	sets        consentWatch[listenerSet]
	needed      chan struct{} // closed as soon as a configuration names something of another namespace
	once        sync.Once
	hasGrants   atomic.Bool // all have been shown
	hasSets     atomic.Bool
	changes     chan struct{} // has a value after a change
	// something was answered for names or objects while that was not known. It is asked again.
	unsureNames, unsureObjects atomic.Bool

	mu        sync.Mutex
	listeners map[string]func(again bool)
	granted   map[string]map[string]*referenceGrant // by namespace and name
	gateways  map[slim.Key]slim.Key                 // those of ListenerSets
	attached  map[string]map[string]int             // how many ListenerSets, by the namespace of their Gateways and their own
}

// role is what the API server lets the operator do, as k8s.Permissions has it.
type role interface {
	Denies(verb string, ref k8s.Ref) bool
}

// consentWatch is a secretref.Watch.
type consentWatch[T any] interface {
	Follow(ctx context.Context, changed func(stream.Change[T]), synced ...func())
	Complete() error
}

func newConsents(p role, grants consentWatch[referenceGrant], sets consentWatch[listenerSet]) *consents {
	return &consents{
		permissions: p, grants: grants, sets: sets, needed: make(chan struct{}), changes: make(chan struct{}, 1),
		listeners: map[string]func(again bool){}, granted: map[string]map[string]*referenceGrant{}, gateways: map[slim.Key]slim.Key{}, attached: map[string]map[string]int{},
	}
}

// listen has f called after changes, and with again once it is known what was answered without knowing. That is at most once a second, while follow runs. f
// replaces the one of that name.
func (c *consents) listen(name string, f func(again bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners[name] = f
}

// follow reads them until ctx ends, from when they are needed on.
func (c *consents) follow(ctx context.Context) {
	select {
	case <-c.needed:
	case <-ctx.Done():
		return
	}
	reconcile.RunTogether(ctx, []func(context.Context){c.followGrants, c.followSets, c.notifyAll})
}

// notifyAll calls those that listen. As long as an answer may be wrong it waits for no change: a kind that is not served, or that the role does not allow, has none.
func (c *consents) notifyAll(ctx context.Context) {
	for {
		if !c.isUnsure() {
			select {
			case <-c.changes:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-time.After(consentInterval):
		case <-ctx.Done():
			return
		}
		select {
		case <-c.changes: // what came until now is seen below
		default:
		}
		if again := c.resolve(); again || !c.isUnsure() {
			c.notify(again)
		}
	}
}

func (c *consents) notify(again bool) {
	c.mu.Lock()
	listeners := slices.Collect(maps.Values(c.listeners))
	c.mu.Unlock()
	for _, f := range listeners {
		f(again)
	}
}

// changed has those that listen be called.
func (c *consents) changed() {
	select {
	case c.changes <- struct{}{}:
	default:
	}
}

// answer notes that something was answered without knowing.
func (c *consents) answer(unsure *atomic.Bool) {
	if unsure.CompareAndSwap(false, true) {
		c.changed()
	}
}

func (c *consents) isUnsure() bool { return c.unsureNames.Load() || c.unsureObjects.Load() }

// resolve reports whether something is known by now that was answered without.
func (c *consents) resolve() (some bool) {
	if c.unsureNames.Load() && c.areKnown() {
		c.unsureNames.Store(false)
		some = true
	}
	if c.unsureObjects.Load() && c.areComplete() {
		c.unsureObjects.Store(false)
		some = true
	}
	return some
}

// consentInterval is how often it counts at most that there are others.
const consentInterval = time.Second

func (c *consents) followGrants(ctx context.Context) {
	if !c.awaitRole(ctx, grantKind.Resource()) {
		return
	}
	c.grants.Follow(ctx, func(ch stream.Change[referenceGrant]) {
		c.grantChanged(ch)
		c.changed()
	}, func() {
		c.hasGrants.Store(true)
		c.changed()
	})
}

func (c *consents) followSets(ctx context.Context) {
	if !c.awaitRole(ctx, setKind.Resource()) {
		return
	}
	c.sets.Follow(ctx, func(ch stream.Change[listenerSet]) {
		if c.setChanged(ch) {
			c.changed()
		}
	}, func() {
		c.hasSets.Store(true)
		c.changed()
	})
}

// awaitRole waits until the role allows to read a kind, and reports whether ctx has not ended before.
func (c *consents) awaitRole(ctx context.Context, of schema.GroupVersionResource) bool {
	for c.denies(of) {
		select {
		case <-time.After(deniedRetry):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (c *consents) denies(of schema.GroupVersionResource) bool {
	ref := k8s.Ref{Resource: of}
	return c.permissions.Denies("list", ref) || c.permissions.Denies("watch", ref)
}

func (c *consents) grantChanged(ch stream.Change[referenceGrant]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.granted[ch.Key.Namespace]
	if in == nil {
		in = map[string]*referenceGrant{}
		c.granted[ch.Key.Namespace] = in
	}
	if in[ch.Key.Name] = ch.Object; ch.Kind == stream.Delete {
		delete(in, ch.Key.Name)
	}
	if len(in) == 0 {
		delete(c.granted, ch.Key.Namespace)
	}
}

// setChanged reports whether a ListenerSet is at another Gateway now.
func (c *consents) setChanged(ch stream.Change[listenerSet]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var is slim.Key
	if ch.Kind != stream.Delete {
		is = ch.Object.gateway()
	}
	was := c.gateways[ch.Key]
	if is == was {
		return false
	}
	c.attach(was.Namespace, ch.Key.Namespace, -1)
	c.attach(is.Namespace, ch.Key.Namespace, 1)
	if c.gateways[ch.Key] = is; is == (slim.Key{}) {
		delete(c.gateways, ch.Key)
	}
	return true
}

// attach adds to the number of ListenerSets of a namespace at Gateways of another one. The caller has the lock.
func (c *consents) attach(gateways, sets string, more int) {
	if gateways == "" {
		return
	}
	in := c.attached[gateways]
	if in == nil {
		in = map[string]int{}
		c.attached[gateways] = in
	}
	if in[sets] += more; in[sets] == 0 {
		delete(in, sets)
	}
	if len(in) == 0 {
		delete(c.attached, gateways)
	}
}

// areKnown reports whether all have been shown, or there are none, or the role does not allow to know them.
func (c *consents) areKnown() bool {
	return (c.hasGrants.Load() || c.denies(grantKind.Resource()) || c.grants.Complete() == nil) &&
		(c.hasSets.Load() || c.denies(setKind.Resource()) || c.sets.Complete() == nil)
}

// areComplete reports whether all are known as they are now, and that the role allows to know them.
func (c *consents) areComplete() bool {
	return !c.denies(grantKind.Resource()) && !c.denies(setKind.Resource()) && secretref.AllComplete(c.grants, c.sets) == nil
}

// letObject reports whether configurations of a namespace may mean an object of another one. As long as that is not known they may: the copy stays. Those of
// ConfigMaps are of backends of routes, which need no grant, and are no secrets.
func (c *consents) letObject(by string, of secretref.Object) bool {
	if of.Kind == secretref.ConfigMap {
		return true
	}
	c.once.Do(func() { close(c.needed) })
	if !c.areComplete() {
		c.answer(&c.unsureObjects)
		return true
	}
	names := c.from(by, of.Namespace)
	return names.all || names.some[of.Name]
}

// letName reports whether configurations of a namespace may mean some object of another one by a name that no copy has. Where it cannot be known they do not:
// they were served with nothing, and the name is another's.
func (c *consents) letName(by, name string) bool {
	if mayBeOfConfigMap(name) {
		return true
	}
	c.once.Do(func() { close(c.needed) })
	switch {
	case !c.hasGrants.Load() && c.denies(grantKind.Resource()):
		return false
	case !c.areKnown():
		c.answer(&c.unsureNames)
		return true
	}
	for namespace := range secretref.NamespacesOf(name) {
		names := c.from(by, namespace)
		if names.all {
			return true
		}
		for secret := range names.some {
			if (secretref.Object{Kind: secretref.Secret, Key: slim.Key{Namespace: namespace, Name: secret}}).MayHave(name) {
				return true
			}
		}
	}
	return false
}

// mayBeOfConfigMap reports whether a name may be that of the copy of a ConfigMap: something has its plain name by what is before and behind the kind.
func mayBeOfConfigMap(name string) bool {
	for namespace := range secretref.NamespacesOf(name) {
		of, is := strings.CutPrefix(name[len(namespace):], ofConfigMap)
		if is && len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(of)) == 0 {
			return true
		}
	}
	return false
}

// ofConfigMap is in the names of copies of ConfigMaps, between the namespace and the name.
const ofConfigMap = "-cfgmap-"

// from are the Secrets of a namespace to which configurations of Gateways of another one may refer.
func (c *consents) from(by, namespace string) secretNames {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := secretNames{some: map[string]bool{}}
	sets := c.attached[by]
	if sets[namespace] > 0 {
		names.all = true
		return names
	}
	for _, grant := range c.granted[namespace] {
		lets := grant.isFor("Gateway", by)
		for set := range sets {
			lets = lets || grant.isFor("ListenerSet", set)
		}
		if lets {
			names.all = grant.add(names.some) || names.all
		}
	}
	return names
}

// isForeign reports whether a name, or what has it, is of no object of a namespace.
func isForeign(namespace, name string, of secretref.Object) bool {
	if of != (secretref.Object{}) {
		return of.Namespace != namespace
	}
	return !strings.HasPrefix(name, namespace+"-")
}
