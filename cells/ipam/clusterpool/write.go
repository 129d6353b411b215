// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

var status = schema.GroupResource{Group: v2.GroupName, Resource: "ciliumnodes/status"}

// writers is how many nodes are written at once.
const writers = 16

// pendingWrite is the observed and the desired state of a node, if they differ.
func (c *controller) pendingWrite(name string) (o observed, d desired, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Alloc.upToDate(name) {
		return o, d, false
	}
	d, ok = c.Alloc.desired(name)
	return c.Alloc.nodes[name].observed, d, ok
}

// errOutdated is returned for a CiliumNode that the API server shows in another state than the observed one.
var errOutdated = errors.New("the CiliumNode has changed since it was observed")

// writeNode writes what is desired of a node.
func (c *controller) writeNode(ctx context.Context, name string) error {
	err := c.writeDifference(ctx, name)
	if errors.Is(err, errOutdated) {
		return reconcile.Recheck()
	}
	return err
}

// writeDifference writes CIDRs first, then the error.
func (c *controller) writeDifference(ctx context.Context, name string) error {
	o, d, ok := c.pendingWrite(name)
	if !ok {
		c.recordStored(name, nil)
	}
	if !ok || ctx.Err() != nil {
		return ctx.Err()
	}
	ref := k8s.Ref{Resource: v2.CiliumNodeResource, Name: name}
	if d.PodCIDRs != nil {
		_, err := c.modify(ctx, ref, o, func(u *unstructured.Unstructured) error { return setPodCIDRs(u, o.PodCIDRs, d.PodCIDRs) })
		c.recordStored(name, err)
		if err != nil {
			return err
		}
	}
	if d.Error != o.Error && !o.ErrorUndecoded {
		ref.Subresource = "status"
		written, err := c.modify(ctx, ref, o, func(u *unstructured.Unstructured) error { return setError(u, d.Error) })
		if err != nil {
			return err
		}
		if written {
			c.recordEvent(o, d)
		}
	}
	return nil
}

// recordStored records whether the CIDRs of a node could be written.
func (c *controller) recordStored(name string, err error) {
	if errors.Is(err, errOutdated) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.Alloc.nodes[name]; err != nil && known {
		c.unstored[name] = true
	} else if c.unstored[name] {
		delete(c.unstored, name)
	} else {
		return
	}
	c.Metrics.update(c.Alloc, len(c.unstored))
}

// recordEvent records an Event about the error that was written to a node.
func (c *controller) recordEvent(o observed, d desired) {
	if d.Error == "" {
		return
	}
	text := d.Error
	if d.holder != "" {
		text += ": " + d.holder
	}
	c.Events.Warning(o.reference(), d.reason, text)
}

// modify changes a node that is still the observed one.
func (c *controller) modify(ctx context.Context, ref k8s.Ref, o observed, edit func(*unstructured.Unstructured) error) (written bool, err error) {
	_, written, err = c.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		if string(u.GetUID()) != o.UID || u.GetDeletionTimestamp() != nil || ciliumio.IgnoresIPAM(u.GetAnnotations()) {
			return errOutdated
		}
		return edit(u)
	})
	if errors.Is(err, errOutdated) || k8s.IsNotFound(err, ref) {
		return false, errOutdated
	}
	c.Metrics.recordWrite(written, err)
	return written, err
}

// setPodCIDRs sets the CIDRs of a node, unless it has others than the observed ones.
func setPodCIDRs(u *unstructured.Unstructured, from, to []string) error {
	has, _, err := unstructured.NestedStringSlice(u.Object, "spec", "ipam", "podCIDRs")
	if err != nil {
		return err
	}
	if !slices.Equal(ciliumio.FirstCIDRs(has), from) {
		return errOutdated
	}
	return unstructured.SetNestedStringSlice(u.Object, to, "spec", "ipam", "podCIDRs")
}

func setError(u *unstructured.Unstructured, text string) error {
	if text == "" {
		unstructured.RemoveNestedField(u.Object, "status", "ipam", "operator-status", "error")
		return nil
	}
	return unstructured.SetNestedField(u.Object, text, "status", "ipam", "operator-status", "error")
}
