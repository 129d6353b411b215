// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// asParent is a Gateway as what has listeners.
func (g *gateway) asParent() listener.Parent {
	return listener.Parent{ObjectMeta: &g.ObjectMeta, Kind: route.KindGateway, Listeners: g.Spec.Listeners}
}

// asParent is a ListenerSet as what has listeners.
func (s *listenerSet) asParent() listener.Parent {
	p := listener.Parent{ObjectMeta: &s.ObjectMeta, Kind: route.KindListenerSet}
	for _, l := range s.Spec.Listeners {
		p.Listeners = append(p.Listeners, gatewayv1.Listener(l))
	}
	return p
}

// id is the key of a ListenerSet among objects of all kinds.
func (s *listenerSet) id() slim.Key { return route.KeyOf(route.KindListenerSet, s.Key()) }

func (s *listenerSet) reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: api.String(), Kind: route.KindListenerSet, Namespace: s.Namespace.String(), Name: s.Name, UID: s.UID.API()}
}

// gatewayKey is the Gateway whose listeners a ListenerSet adds to. ok is false if its parent is something else.
func (s *listenerSet) gatewayKey() (key slim.Key, ok bool) {
	ref := gatewayv1.ParentReference{Group: s.Spec.ParentRef.Group, Kind: s.Spec.ParentRef.Kind, Namespace: s.Spec.ParentRef.Namespace, Name: s.Spec.ParentRef.Name}
	return route.ParentKey(s.Namespace.String(), ref), route.ParentKind(ref) == route.KindGateway
}

// comparePrecedence sorts ListenerSets: listeners of the older one stay, then of the one whose name is first.
func comparePrecedence(a, b *listenerSet) int {
	return cmp.Or(
		cmp.Compare(a.CreationTimestamp, b.CreationTimestamp),
		strings.Compare(a.Namespace.String()+"/"+a.Name, b.Namespace.String()+"/"+b.Name),
	)
}

// allowsSets reports whether a Gateway allows ListenerSets of a namespace. By default it allows none.
func (g *gateway) allowsSets(namespace string, lookup route.Lookup) bool {
	a := g.Spec.AllowedListeners
	if a == nil || a.Namespaces == nil || a.Namespaces.From == nil {
		return false
	}
	return listener.NewNamespaces(*a.Namespaces.From, a.Namespaces.Selector).Allow(g.Namespace.String(), namespace, lookup)
}

// setPlan is what becomes of a ListenerSet at its Gateway.
type setPlan struct {
	of        *listenerSet
	allowed   bool
	listeners []*listener.Listener // none if it is not allowed
	lost      []lostHost           // to older routes
}

// leftOut is why a ListenerSet is left out, nil if it is not. One that is cut has its own condition.
func (p *setPlan) leftOut() *condition.Condition {
	if p.of.IsCut() {
		return nil
	}
	for _, l := range p.listeners {
		if l.LeftOut != nil {
			return l.LeftOut
		}
	}
	return nil
}

// shows reports whether the status of a ListenerSet has a reason at one of its listeners.
func (p *setPlan) shows(reason string) bool {
	return slices.ContainsFunc(p.of.Status.Listeners, func(l gatewayv1.ListenerEntryStatus) bool {
		return slices.ContainsFunc(l.Conditions, func(c metav1.Condition) bool { return c.Reason == reason })
	})
}

// setResult is what the status of a ListenerSet says, beside its listeners.
type setResult struct{ accepted, programmed condition.Condition }

// ownMark is how the message of the condition Accepted begins that is written here. A ListenerSet has no other field that says
// which controller its status is of.
const ownMark = string(controllerName) + ": "

// isOurs reports whether a status was written here.
func isOurs(s gatewayv1.ListenerSetStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
		return c.Type == string(gatewayv1.ListenerSetConditionAccepted) && strings.HasPrefix(c.Message, ownMark)
	})
}

// parentNotProgrammed is a reason of the Gateway API that its Go module has no constant for.
const parentNotProgrammed = "ParentNotProgrammed"

// result decides about the conditions of a ListenerSet. It is accepted if one of its listeners is valid. What is said of others
// is for those who can read them.
func (p *setPlan) result(of gatewayResult) setResult {
	refuse := func(reason gatewayv1.ListenerSetConditionReason, message string) setResult {
		return setResult{condition.False(reason, ownMark+message), condition.False(reason, message)}
	}
	isInvalid := func(l *listener.Listener) bool { return !l.Usable() }
	r := setResult{
		accepted:   condition.True(gatewayv1.ListenerSetReasonAccepted, ownMark+"ListenerSet accepted"),
		programmed: condition.True(gatewayv1.ListenerSetReasonProgrammed, "ListenerSet programmed"),
	}
	switch {
	case !p.allowed:
		return refuse(gatewayv1.ListenerSetReasonNotAllowed, "spec.allowedListeners of the Gateway does not allow ListenerSets of this namespace")
	case !of.accepted.OK:
		r = refuse(gatewayv1.ListenerSetReasonParentNotAccepted, "The Gateway is not accepted: "+of.accepted.Reason)
		r.programmed.Reason = parentNotProgrammed
		return r
	case p.of.IsCut():
		return refuse(gatewayv1.ListenerSetReasonListenersNotValid, "It is not served: "+p.of.CutError().Error())
	case !slices.ContainsFunc(p.listeners, (*listener.Listener).Usable):
		return refuse(gatewayv1.ListenerSetReasonListenersNotValid, "No listener is valid: see status.listeners")
	case slices.ContainsFunc(p.listeners, isInvalid):
		r.accepted.Reason, r.accepted.Message = string(gatewayv1.ListenerSetReasonListenersNotValid), ownMark+"Some listeners are not valid: see status.listeners"
	}
	if !of.programmed.OK {
		r.programmed = condition.False(parentNotProgrammed, "The Gateway is not programmed: "+of.programmed.Reason)
	}
	return r
}

// applyStatus sets a status, and reports whether it was another one. Without counts the numbers of routes stay as they are.
func (p *setPlan) applyStatus(to *gatewayv1.ListenerSetStatus, r setResult, attached map[*listener.Listener]int32, counts bool, now metav1.Time) (changed bool) {
	generation := p.of.Generation
	changed = setCondition(&to.Conditions, string(gatewayv1.ListenerSetConditionAccepted), r.accepted, generation, now)
	changed = setCondition(&to.Conditions, string(gatewayv1.ListenerSetConditionProgrammed), r.programmed, generation, now) || changed
	var has []gatewayv1.ListenerStatus
	for _, s := range to.Listeners {
		has = append(has, gatewayv1.ListenerStatus(s))
	}
	all := p.listeners
	if p.of.IsCut() { // little is known of them
		all = nil
	}
	listeners, differ := applyListeners(has, all, attached, generation, counts, now)
	to.Listeners = nil
	for _, s := range listeners {
		to.Listeners = append(to.Listeners, gatewayv1.ListenerEntryStatus(s))
	}
	return changed || differ
}

// resetStatus sets the status of a ListenerSet whose parent is not served here any more to what the API server sets for a new
// one, if it was written here. It reports whether it was.
func resetStatus(to *gatewayv1.ListenerSetStatus, why string, now metav1.Time) (changed bool) {
	if !isOurs(*to) {
		return false
	}
	to.Listeners = nil
	for _, kind := range []gatewayv1.ListenerSetConditionType{gatewayv1.ListenerSetConditionAccepted, gatewayv1.ListenerSetConditionProgrammed} {
		condition.Remove(&to.Conditions, string(kind))
		to.Conditions = append(to.Conditions, metav1.Condition{
			Type: string(kind), Status: metav1.ConditionUnknown, Reason: string(gatewayv1.ListenerSetReasonPending), Message: why, LastTransitionTime: now,
		})
	}
	return true
}

const (
	// roleLimit is how long ListenerSets are not decided about because the role has not been read, which takes some milliseconds.
	roleLimit = 10 * time.Second
	rolePause = 100 * time.Millisecond
	// deniedRetry is how often it is looked whether the role allows by now to serve ListenerSets.
	deniedRetry = time.Minute
)

// knownSets is what is known of ListenerSets. The zero value has none.
type knownSets struct {
	served     bool // by the API server, and the role allows to serve them
	denied     bool // by the role
	awaitsRole bool
	store      *stream.Store[listenerSet] // nil if they are not served, or not known yet
}

// known reports whether the store, if any, is complete.
func (s knownSets) known() bool { return !s.awaitsRole && (!s.served || s.store != nil) }

// result is that of a Reconcile that did not write, or wrote by what is known.
func (s knownSets) result(reason string) reconcile.Result {
	switch {
	case s.awaitsRole:
		return reconcile.Result{RequeueAfter: rolePause, Reason: reason}
	case s.denied:
		return reconcile.Result{RequeueAfter: deniedRetry, Reason: reason}
	}
	return reconcile.Result{Reason: reason}
}

// awaiting is the result of a Reconcile that waits for what is watched, or for what the role allows.
func (c *controller) awaiting(s knownSets) reconcile.Result {
	result := s.result(isWaiting)
	if result.RequeueAfter == 0 && !c.Permissions.Known() {
		result.RequeueAfter = rolePause
	}
	return result
}

// of are the ListenerSets that refer to a Gateway.
func (s knownSets) of(gateway slim.Key) (all []*listenerSet) {
	if s.store == nil {
		return nil
	}
	return slices.Collect(stream.ByIndex(s.store, setsByGateway, gateway))
}

// get returns a ListenerSet, nil if there is none. known is false for one of which nothing could be decoded.
func (s knownSets) get(key slim.Key) (set *listenerSet, known bool) {
	if s.store == nil {
		return nil, true
	}
	set, exists := s.store.Get(key)
	return set, exists || !s.store.Hides(key)
}

// hidesOneOf reports whether there is a ListenerSet of which nothing could be decoded, and which may be of a Gateway.
func (s knownSets) hidesOneOf(g *gateway, lookup route.Lookup) bool {
	return s.store != nil && slices.ContainsFunc(s.store.Unreadable(), func(key slim.Key) bool {
		_, known := s.store.Get(key)
		return !known && g.allowsSets(key.Namespace, lookup)
	})
}

// mayServe reports whether a Gateway, by itself or by a ListenerSet, has a listener that allows routes of a namespace.
func (s knownSets) mayServe(g *gateway, namespace string, lookup route.Lookup) bool {
	return g.asParent().AllowsRoutes(namespace, lookup) || slices.ContainsFunc(s.of(g.Key()), func(set *listenerSet) bool {
		return g.allowsSets(set.Namespace.String(), lookup) && set.asParent().AllowsRoutes(namespace, lookup)
	})
}

// hides reports whether there is a ListenerSet of which nothing could be decoded.
func (s knownSets) hides() bool {
	return s.store != nil && slices.ContainsFunc(s.store.Unreadable(), s.store.Hides)
}

// needListenerSets has ListenerSets watched for a key, if the API server has them and the role allows to serve them.
func (c *controller) needListenerSets(ctx context.Context, key slim.Key) (s knownSets, err error) {
	d, err := c.definition(ctx, listenerSets.Resource().GroupResource())
	if err != nil {
		return s, err
	}
	if slices.Contains(d.versions, listenerSets.Resource().Version) {
		s.awaitsRole = !c.Permissions.Known() && time.Since(c.began) < roleLimit
		s.denied = c.deniesListenerSets()
		s.served = !s.denied
	}
	switch {
	case s.awaitsRole:
		return s, nil
	case s.served:
		s.store = c.sets.Need(key)
	default:
		c.sets.Drop(key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.setStore == nil && s.store != nil {
		c.refused.enqueue(idsOfSets(s.store))
	}
	c.setStore = s.store
	return s, nil
}

// idsOfSets are the keys of all ListenerSets: while these are not known, each waits.
func idsOfSets(store *stream.Store[listenerSet]) (keys []slim.Key) {
	for set := range store.All() {
		keys = append(keys, set.id())
	}
	return keys
}

// listenerSetStore is the store of ListenerSets, nil while they are not known.
func (c *controller) listenerSetStore() *stream.Store[listenerSet] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setStore
}

// reconcileListenerSet resets the status of a ListenerSet whose parent is not served here any more. The Reconcile of the Gateway
// writes it otherwise, as it depends on all listeners of that.
func (c *controller) reconcileListenerSet(ctx context.Context, of slim.Key) (reconcile.Result, error) {
	store := c.listenerSetStore()
	if store == nil {
		return reconcile.Result{Reason: isWaiting}, nil
	}
	s, exists := store.Get(of)
	if !exists || !s.DeletionTimestamp.IsZero() {
		return reconcile.Result{Reason: isGone}, nil
	}
	key, isGateway := s.gatewayKey()
	if isGateway {
		g, ours, known := c.parents(knownSets{}).gateway(key)
		switch {
		case !known:
			return reconcile.Result{RequeueAfter: unreadableRetry, Reason: isWaiting}, nil
		case g != nil && ours:
			return reconcile.Result{Reason: s.refusal()}, nil
		}
	}
	now := metav1.NewTime(c.Deps.Plan.Now())
	const why = "Waiting for controller: no Gateway of a class of " + string(controllerName) + " is the parent"
	if !resetStatus(s.Status.DeepCopy(), why, now) {
		return reconcile.Result{Reason: noParent}, nil
	}
	return reconcile.Result{Reason: noParent}, modifyStatus(ctx, c.Client, statusRef(listenerSets.Resource(), &s.ObjectMeta), func(to *gatewayv1.ListenerSetStatus) {
		resetStatus(to, why, now)
	})
}

// refusal is the words of the status for a ListenerSet that is not served as it asks for: those about its first such listener, or about itself.
func (s *listenerSet) refusal() string {
	for _, l := range s.Status.Listeners {
		if c := firstFalse(l.Conditions); c != nil {
			return "not served as it asks for: listener " + string(l.Name) + ": " + c.Type + " " + c.Reason + ": " + c.Message
		}
	}
	if c := firstFalse(s.Status.Conditions); c != nil {
		return "not served as it asks for: " + c.Type + " " + c.Reason + ": " + c.Message
	}
	return ""
}

// firstFalse is the first condition that is false, but for Conflicted, which is well then.
func firstFalse(all []metav1.Condition) *metav1.Condition {
	i := slices.IndexFunc(all, func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionFalse && c.Type != string(gatewayv1.ListenerConditionConflicted)
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}
