// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// claim is that of a CiliumNode to the instance that it names (CIPAM-41). An agent can write any instance into its CiliumNode, and what another one shows,
// too. It cannot write spec.providerID of a Node: the cloud controller or the kubelet sets that once, and the API server lets no one change it. So that
// decides where the Nodes of both have one, or one has no Node at all. (Addresses of Nodes decide nothing: roles let agents write statuses of Nodes.) Where a Node has none, as where no
// cloud controller runs, the instance stays with the CiliumNode that has it in this term of the leader. When a term begins, it is that of the one that shows
// interfaces of it, and only then that of the older. Nodes are read only while two CiliumNodes name one instance: a watch of all is not worth that.
type claim struct {
	*ciliumNode
	provided
	has   bool // in this term
	shows bool // something of its interfaces
}

// ownerAmong returns which of the CiliumNodes that name an instance has it, of those that the Nodes admit. It depends on no order of these, and is never nil
// if there are some.
func ownerAmong(instance string, claims []claim) (owner *claim) {
	claims = admitted(instance, claims)
	for i := range claims {
		if c := &claims[i]; owner == nil || c.goesBefore(owner) {
			owner = c
		}
	}
	return owner
}

// admitted are the claims among which the Nodes do not decide: where one names the instance, not those of Nodes that name another one. Without a Node a
// CiliumNode goes behind those whose Node does not name another instance.
func admitted(instance string, claims []claim) []claim {
	isNamed := slices.ContainsFunc(claims, func(c claim) bool { return isOfInstance(c.id, instance) })
	hasNode := isNamed || slices.ContainsFunc(claims, func(c claim) bool { return c.id == "" && !c.absent })
	return slices.DeleteFunc(slices.Clone(claims), func(c claim) bool {
		return hasNode && c.absent || isNamed && c.id != "" && !isOfInstance(c.id, instance)
	})
}

// goesBefore compares claims for which the Nodes decide nothing.
func (c *claim) goesBefore(other *claim) bool {
	switch {
	case c.has != other.has:
		return c.has
	case c.shows != other.shows:
		return c.shows
	}
	return c.isOlderThan(other.ciliumNode)
}

// isOfInstance reports whether the ID of a Node at its provider is that of an instance: aws:///zone/i-1, region.i-1, azure:///subscriptions/….
func isOfInstance(providerID, instance string) bool {
	before, is := strings.CutSuffix(strings.ToLower(providerID), strings.ToLower(instance))
	return is && instance != "" && (before == "" || strings.HasPrefix(instance, "/") || strings.HasSuffix(before, "/") || strings.HasSuffix(before, "."))
}

// shows reports whether a CiliumNode has something of interfaces, which is written there when it gets addresses.
func (n *ciliumNode) shows(interfaces map[string]bool) bool {
	for id := range interfaces {
		if _, is := n.Status.ENI.ENIs[id]; is {
			return true
		}
		if _, is := n.Status.AlibabaCloud.ENIs[id]; is {
			return true
		}
	}
	for _, a := range n.Spec.IPAM.Pool {
		if interfaces[a.Resource] {
			return true
		}
	}
	for _, of := range n.Status.Azure.Interfaces {
		if interfaces[of.ID] {
			return true
		}
	}
	return false
}

// ids are the IDs of the interfaces of an instance.
func (i *Instance) ids() map[string]bool {
	ids := map[string]bool{}
	if i != nil {
		for _, of := range i.Interfaces {
			ids[of.ID] = true
		}
	}
	return ids
}

// ownerOf returns the name of the CiliumNode that has the instance of one, which was read from the cloud.
func (c *controller) ownerOf(ctx context.Context, n *ciliumNode, i *Instance) (string, error) {
	instance := n.instanceID()
	c.mu.Lock()
	has := c.owners[instance]
	c.mu.Unlock()
	if key := (slim.Key{Name: has}); has != "" && c.nodes.Hides(key) {
		if _, ok := c.nodes.Get(key); !ok {
			return has, nil // it cannot be decoded, and keeps what it has
		}
	}
	claims := []claim{{ciliumNode: n, has: n.Name == has}}
	for of := range stream.ByIndex(c.nodes, byInstance, instance) {
		if of.Name != n.Name && of.DeletionTimestamp.IsZero() {
			claims = append(claims, claim{ciliumNode: of, has: of.Name == has})
		}
	}
	if len(claims) == 1 {
		return n.Name, nil
	}
	claims, err := c.provide(ctx, instance, claims)
	if err != nil {
		return "", err
	}
	claims = admitted(instance, claims)
	interfaces := i.ids()
	for at := range claims {
		claims[at].shows = claims[at].ciliumNode.shows(interfaces)
	}
	return ownerAmong(instance, claims).Name, nil
}

// fewClaims is how many CiliumNodes may name an instance whose Nodes are all read at once for one whose own Node names it: an agent can create thousands.
const fewClaims = 16

// provide returns the claims that count, with what their Nodes have. The first is that of the CiliumNode that is processed. If its own Node names the
// instance, or that of the one which has it, Nodes of others are not waited for.
func (c *controller) provide(ctx context.Context, instance string, claims []claim) (count []claim, err error) {
	has := slices.IndexFunc(claims, func(c claim) bool { return c.has })
	if has >= 0 {
		if claims[has].provided, err = c.providedOf(ctx, claims[has].Name, nil); err != nil || isOfInstance(claims[has].id, instance) {
			return claims[has : has+1], err
		}
	}
	if claims[0].provided, err = c.providedOf(ctx, claims[0].Name, nil); err != nil {
		return nil, err
	}
	limit, isOwn := c.nodeReads, isOfInstance(claims[0].id, instance)
	switch {
	case isOwn && len(claims) <= fewClaims:
		limit = nil // it does not wait for those that others have read
	case isOwn && has < 0:
		return claims[:1], nil
	case isOwn:
		return []claim{claims[0], claims[has]}, nil
	}
	for at := range claims {
		if claims[at].provided, err = c.providedOf(ctx, claims[at].Name, limit); err != nil {
			return nil, err
		}
	}
	return claims, nil
}

// own records that a CiliumNode has an instance, until it is deleted, or names another one. isFromAnother is that another one had it.
func (c *controller) own(instance, name string) (isFromAnother bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.owners[instance]
	c.owners[instance] = name
	return was != "" && was != name
}

// disown forgets that a CiliumNode has an instance, and returns whether it did.
func (c *controller) disown(instance, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners[instance] != name {
		return false
	}
	delete(c.owners, instance)
	return true
}

// providerMemory is for how long an answer about a Node counts at least: one that is new has no ID yet, and another Node may have its name.
const providerMemory = 30 * time.Second

// nodesPerSecond is how many Nodes are read where many CiliumNodes name instances of others. Answers count for twice as long as the reads of all take.
const nodesPerSecond, nodesAtOnce = 25, 100

// provided is the ID of a Node at its provider, "" for none, and if it is not known. absent is that there is no such Node.
type provided struct {
	id     string
	absent bool
	at     time.Time
}

// providedOf reads spec.providerID of the Node of a CiliumNode, if the role allows it. A limit that is reached has the CiliumNode that is processed wait.
func (c *controller) providedOf(ctx context.Context, name string, limit *rate.Limiter) (provided, error) {
	now := c.now()
	c.mu.Lock()
	is, ok := c.provided[name]
	memory := max(providerMemory, time.Duration(len(c.provided))*2*time.Second/nodesPerSecond)
	isBeingRead := c.reading[name]
	c.mu.Unlock()
	switch {
	case ok && now.Sub(is.at) < memory:
		return is, nil
	case isBeingRead: // for another CiliumNode
		return provided{}, reconcile.RequeueAfter(time.Second)
	}
	if limit != nil {
		if turn := limit.ReserveN(now, 1); turn.DelayFrom(now) > 0 {
			defer turn.CancelAt(now)
			return provided{}, reconcile.RequeueAfter(max(turn.DelayFrom(now), time.Second))
		}
	}
	is, err := c.readProvided(ctx, name)
	if err != nil {
		return provided{}, err
	}
	is.at = now
	c.mu.Lock()
	defer c.mu.Unlock()
	c.provided[name] = is
	return is, nil
}

// readProvided reads spec.providerID of a Node.
func (c *controller) readProvided(ctx context.Context, name string) (is provided, err error) {
	mark := func(isBeingRead bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reading[name] = isBeingRead
		if !isBeingRead {
			delete(c.reading, name)
		}
	}
	mark(true)
	defer mark(false)
	ref := k8s.Ref{Resource: coreNodes, Name: name}
	u, err := c.Client.Get(ctx, ref)
	switch {
	case err == nil:
		is.id, _, _ = unstructured.NestedString(u.Object, "spec", "providerID")
	case k8s.IsNotFound(err, ref):
		is.absent = true
	case !apierrors.IsForbidden(err):
		return provided{}, fmt.Errorf("reading Node %s, whose instance another CiliumNode names: %w", name, err)
	}
	return is, nil
}

var coreNodes = corev1.SchemeGroupVersion.WithResource("nodes")
