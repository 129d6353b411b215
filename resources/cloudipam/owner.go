// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/k8s"
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

// ownerAmong returns which of the CiliumNodes that name an instance has it. It depends on no order of these, and is never nil if there are some.
func ownerAmong(instance string, claims []claim) (owner *claim) {
	isNamed := slices.ContainsFunc(claims, func(c claim) bool { return isOfInstance(c.id, instance) })
	for i := range claims {
		c := &claims[i]
		if isNamed && (c.absent || c.id != "" && !isOfInstance(c.id, instance)) {
			continue
		}
		if owner == nil || c.goesBefore(owner) {
			owner = c
		}
	}
	return owner
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

// shows reports whether a CiliumNode has something of an interface of its instance, which is written there when it gets addresses.
func (n *ciliumNode) shows(i *Instance) bool {
	if i == nil {
		return false
	}
	shown := map[string]bool{}
	for _, a := range n.Spec.IPAM.Pool {
		shown[a.Resource] = true
	}
	for id := range n.Status.ENI.ENIs {
		shown[id] = true
	}
	for id := range n.Status.AlibabaCloud.ENIs {
		shown[id] = true
	}
	for _, of := range n.Status.Azure.Interfaces {
		shown[of.ID] = true
	}
	return slices.ContainsFunc(i.Interfaces, func(of Interface) bool { return shown[of.ID] })
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
	claims := []claim{{ciliumNode: n, has: n.Name == has, shows: n.shows(i)}}
	for of := range stream.ByIndex(c.nodes, byInstance, instance) {
		if of.Name != n.Name && of.DeletionTimestamp.IsZero() {
			claims = append(claims, claim{ciliumNode: of, has: of.Name == has, shows: of.shows(i)})
		}
	}
	if len(claims) == 1 {
		return n.Name, nil
	}
	for at := range claims {
		var err error
		if claims[at].provided, err = c.providedOf(ctx, claims[at].Name); err != nil {
			return "", err
		}
	}
	return ownerAmong(instance, claims).Name, nil
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

// providerMemory is for how long an answer about a Node counts: one that is new has no ID yet, and another Node may have its name.
const providerMemory = 30 * time.Second

// provided is the ID of a Node at its provider, "" for none, and if it is not known. absent is that there is no such Node.
type provided struct {
	id     string
	absent bool
	at     time.Time
}

// providedOf reads spec.providerID of the Node of a CiliumNode, if the role allows it.
func (c *controller) providedOf(ctx context.Context, name string) (provided, error) {
	now := c.now()
	c.mu.Lock()
	is, ok := c.provided[name]
	c.mu.Unlock()
	if ok && now.Sub(is.at) < providerMemory {
		return is, nil
	}
	is = provided{at: now}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	c.provided[name] = is
	return is, nil
}

var coreNodes = corev1.SchemeGroupVersion.WithResource("nodes")
