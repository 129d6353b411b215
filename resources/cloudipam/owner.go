// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"slices"

	"github.com/skep-operator/skep/resources/stream"
)

// ownerOf returns the CiliumNode that has the instance of another one, nil if that has it itself (CIPAM-41). An agent can write any instance into its
// CiliumNode: one that has an instance in this term keeps it. When a term begins it is the one that shows interfaces of the instance. Else it is the older.
func (c *controller) ownerOf(n *ciliumNode) *ciliumNode {
	var owner *ciliumNode
	for other := range stream.ByIndex(c.nodes, byInstance, n.instanceID()) {
		if other.Name != n.Name && c.goesBefore(other, n) && (owner == nil || c.goesBefore(other, owner)) {
			owner = other
		}
	}
	return owner
}

// goesBefore reports which of two CiliumNodes has the instance that both name.
func (c *controller) goesBefore(other, n *ciliumNode) bool {
	c.mu.Lock()
	owner := c.owners[n.instanceID()]
	c.mu.Unlock()
	if owner == other.UID.String() || owner == n.UID.String() {
		return owner == other.UID.String()
	}
	if others, own := c.showsInstance(other), c.showsInstance(n); others != own {
		return others
	}
	return other.isOlderThan(n)
}

// own records that a node has its instance, until it is deleted, or names another one.
func (c *controller) own(st *nodeState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owners[st.instance] = st.uid
}

// disown forgets that. The caller has the lock.
func (c *controller) disown(st *nodeState) {
	if c.owners[st.instance] == st.uid {
		delete(c.owners, st.instance)
	}
}

// showsInstance reports whether a CiliumNode has something of an interface of its instance, which is written there when it gets addresses.
func (c *controller) showsInstance(n *ciliumNode) bool {
	i, _, _ := c.cloud.get(n.instanceID())
	if i.Instance == nil {
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
