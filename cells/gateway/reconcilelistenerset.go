// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

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
	c.setStore = s.store
	return s, nil
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
			return reconcile.Result{Reason: isWaiting}, nil
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

// refusal is the words of the status for a ListenerSet that is not served as it asks for.
func (s *listenerSet) refusal() string {
	for _, c := range s.Status.Conditions {
		if c.Status == metav1.ConditionFalse {
			return "not served as it asks for: " + c.Type + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}
