// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// static is the public address of a node, as far as it is known here.
type static struct {
	address string // that was assigned, until the cloud shows it
	problem string // for users, "" for none
	retry   retry
}

// maintainStaticIP gives a node the public address that spec.ipam.static-ip-tags asks for (CIPAM-47), before anything else: agents from
// 1.20 do not start without it. called is that the cloud was called; pause is when it is to be tried again, 0 for at the next
// change. A failure is none of the node's other addresses.
func (c *controller) maintainStaticIP(ctx context.Context, st *nodeState, s snapshot, now time.Time) (called bool, pause time.Duration) {
	provider, can := c.Provider.(StaticAddresser)
	switch {
	case len(s.node.Spec.IPAM.StaticIPTags) == 0:
		st.static = static{}
		return false, 0
	case !can:
		c.setStaticProblem(st, s, "spec.ipam.static-ip-tags asks for a public address, and none can be assigned in this cloud: remove --ipam-static-ip-tags of the agent", nil)
		return false, 0
	case st.static.address != "" || isAddress(s.node.Status.IPAM.AssignedStaticIP) || provider.StaticIP(s.node, s.instance) != "":
		st.static.problem = ""
		return false, 0
	}
	if rest := st.static.retry.at.Sub(now); rest > 0 {
		return false, rest
	}
	address, err := provider.AssignStaticIP(ctx, s.node, s.instance)
	if err == nil && !isAddress(address) {
		err = fmt.Errorf("the cloud has assigned %q as a public address, which is none", address)
	}
	if err != nil {
		if pause, is := c.isNoFailure(ctx, &st.static.retry, err, now); is {
			return false, pause
		}
		c.changed(st)
		text, of := err.Error(), new(NodeError)
		if errors.As(err, &of) && of.Text != "" {
			text = of.Text
		}
		c.setStaticProblem(st, s, text, err)
		return true, c.retryAfter(&st.static.retry, now)
	}
	c.changed(st)
	st.static = static{address: address}
	c.Log.Info("public address assigned", "name", s.node.Name, "instance", s.instance.ID, "address", address)
	return true, 0
}

// setStaticProblem reports once why a node has no public address.
func (c *controller) setStaticProblem(st *nodeState, s snapshot, text string, err error) {
	if st.static.problem == text {
		return
	}
	st.static.problem = text
	c.report(s.node.Name, text)
	if err == nil {
		err = errors.New(text)
	}
	c.Log.Warn("no public address for CiliumNode", "name", s.node.Name, "instance", s.instance.ID, "error", err)
}

// staticIP is the public address of a node that asks for one: the one that the cloud shows, or else the one that was assigned. "" is
// for that it stays as it is in the status.
func (c *controller) staticIP(st *nodeState, s snapshot) string {
	provider, can := c.Provider.(StaticAddresser)
	if !can || len(s.node.Spec.IPAM.StaticIPTags) == 0 {
		return ""
	}
	if shown := provider.StaticIP(s.node, s.instance); isAddress(shown) {
		return shown
	}
	return st.static.address
}

// isAddress reports whether a text is an address. The status of a node on Azure may have the id of a prefix, of operators of 1.19.
func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}
