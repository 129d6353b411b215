// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// pendingWrite is the observed and the desired state of a node.
type pendingWrite struct {
	observed
	desired
	waits bool
}

// pendingWrite returns what is to be written of a node. ok is false if it is up to date and waits for nothing.
func (c *controller) pendingWrite(name string) (w pendingWrite, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer panics.Sharing()
	n := c.alloc.nodes[name]
	if n != nil && n.waits() {
		c.retryWaiting()
	}
	if n == nil || !c.alloc.synced || n.upToDate() && !n.waits() {
		return w, false
	}
	return pendingWrite{n.observed, n.desired, n.waits()}, true
}

// retryWaiting retries if the list of undecodable nodes has changed. Each node that waits for them is requeued.
func (c *controller) retryWaiting() {
	c.alloc.claims.setUndecoded(keyNames(c.undecodable()))
	c.alloc.retryPending()
	c.Metrics.update(c.alloc)
	c.report()
}

// errOutdated is returned for a CiliumNode that the API server shows in another state than the observed one.
var errOutdated = errors.New("the CiliumNode has changed since it was observed")

// write writes an error before the CIDRs, which it may be about, and clears one after them.
func (c *controller) write(ctx context.Context, w pendingWrite) error {
	steps := []func(context.Context, pendingWrite) error{c.writeAllocated, c.writeError}
	if w.desired.Error != "" {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		err := step(ctx, w)
		if errors.Is(err, errOutdated) {
			return reconcile.Recheck()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *controller) writeAllocated(ctx context.Context, w pendingWrite) error {
	if w.keep || sameAllocation(w.observed.Allocated, w.desired.Allocated) {
		return nil
	}
	// Agents take CIDRs off the list to release them, and need others soon after (MPOOL-37).
	_, err := c.modify(k8s.WithSharedFields(ctx), k8s.Ref{Resource: v2.CiliumNodeResource, Name: w.Name}, w.observed, func(u *unstructured.Unstructured) error {
		has, err := allocatedIn(u)
		if ciliumio.CutPools(has); err != nil || !listsSame(has, w.observed.Allocated) {
			return errOutdated // the change decides
		}
		return setAllocated(u, w.desired.Allocated)
	})
	return err
}

func (c *controller) writeError(ctx context.Context, w pendingWrite) error {
	if w.ErrorUndecoded || w.observed.Error == w.desired.Error {
		return nil
	}
	ref := k8s.Ref{Resource: v2.CiliumNodeResource, Name: w.Name, Subresource: "status"}
	written, err := c.modify(ctx, ref, w.observed, func(u *unstructured.Unstructured) error { return setError(u, w.desired.Error) })
	if err == nil && written && w.desired.Error != "" {
		c.Events.Warning(w.reference(), w.reason, w.desired.eventText())
	}
	return err
}

// modify changes a node that is still the observed one.
func (c *controller) modify(ctx context.Context, ref k8s.Ref, o observed, edit func(*unstructured.Unstructured) error) (written bool, err error) {
	_, written, err = c.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		if string(u.GetUID()) != o.UID || u.GetDeletionTimestamp() != nil || ciliumio.IgnoresIPAM(u.GetAnnotations()) {
			return errOutdated
		}
		return edit(u)
	})
	return written, err
}

func (o observed) reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: v2.SchemeGroupVersion.String(), Kind: "CiliumNode", Name: o.Name, UID: types.UID(o.UID)}
}

// allocatedIn is the list of a node as the API server shows it.
func allocatedIn(u *unstructured.Unstructured) (list []ciliumio.PoolAllocation, err error) {
	elements, _, err := unstructured.NestedSlice(u.Object, "spec", "ipam", "pools", "allocated")
	if err != nil {
		return nil, err
	}
	for _, e := range elements {
		of, isObject := e.(map[string]any)
		pool, _, poolErr := unstructured.NestedString(of, "pool")
		cidrs, _, err := unstructured.NestedStringSlice(of, "cidrs")
		if !isObject || poolErr != nil || err != nil {
			return nil, errors.Join(errors.New("an element cannot be decoded"), poolErr, err)
		}
		first, _, firstErr := unstructured.NestedBool(of, "allowFirstIP")
		last, _, lastErr := unstructured.NestedBool(of, "allowLastIP")
		if err := errors.Join(firstErr, lastErr); err != nil {
			return nil, fmt.Errorf("an element cannot be decoded: %w", err)
		}
		list = append(list, ciliumio.PoolAllocation{Pool: pool, CIDRs: cidrs, AllowFirstIP: first, AllowLastIP: last})
	}
	return list, nil
}

// listsSame reports whether two lists are the same, in their order.
func listsSame(a, b []ciliumio.PoolAllocation) bool {
	return slices.EqualFunc(a, b, func(p, q ciliumio.PoolAllocation) bool {
		return sameEnds(p, q) && slices.Equal(p.CIDRs, q.CIDRs)
	})
}

// setAllocated replaces the list. Fields of an element that this version does not know stay with its pool.
func setAllocated(u *unstructured.Unstructured, list []ciliumio.PoolAllocation) error {
	if len(list) == 0 {
		unstructured.RemoveNestedField(u.Object, "spec", "ipam", "pools", "allocated")
		return nil
	}
	before, _, _ := unstructured.NestedSlice(u.Object, "spec", "ipam", "pools", "allocated")
	elements := make([]any, len(list))
	for i, p := range list {
		elements[i] = elementOf(before, p)
	}
	return unstructured.SetNestedSlice(u.Object, elements, "spec", "ipam", "pools", "allocated")
}

func elementOf(before []any, p ciliumio.PoolAllocation) map[string]any {
	element := map[string]any{}
	for _, e := range before {
		if of, _ := e.(map[string]any); of["pool"] == p.Pool {
			maps.Copy(element, of)
		}
	}
	cidrs := make([]any, len(p.CIDRs))
	for i, text := range p.CIDRs {
		cidrs[i] = text
	}
	element["pool"], element["cidrs"] = p.Pool, cidrs
	for field, is := range map[string]bool{"allowFirstIP": p.AllowFirstIP, "allowLastIP": p.AllowLastIP} {
		if delete(element, field); is {
			element[field] = true
		}
	}
	return element
}

func setError(u *unstructured.Unstructured, text string) error {
	if text == "" {
		unstructured.RemoveNestedField(u.Object, "status", "ipam", "operator-status", "error")
		return nil
	}
	return unstructured.SetNestedField(u.Object, text, "status", "ipam", "operator-status", "error")
}
