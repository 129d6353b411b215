// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

func (c *controller) runMarks(ctx context.Context) error {
	select {
	case <-c.ready:
		return c.marks.Run(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errChanged aborts the write of a mark.
var errChanged = errors.New("the identity was changed")

// writeMark writes or removes the mark of an identity.
func (c *controller) writeMark(ctx context.Context, name string) error {
	n, _ := identity.ParseNumber(name)
	i, ok := c.store.Get(slim.Key{Name: name})
	if !ok || !c.policy.own.Contains(n) || !c.mayWrite() {
		return nil
	}
	var edit func(*unstructured.Unstructured) error
	switch c.policyNow().decide(i, c.used(n), c.unusedSince(idOf(i)), c.Sweep.Plan.Now()) {
	case mark:
		edit = c.mark(i)
	case unmark:
		edit = func(u *unstructured.Unstructured) error { return removeMark(u, i) }
	default:
		return nil
	}
	ref := k8s.Ref{Resource: identities, Name: name}
	stored, written, err := c.Client.Modify(ctx, ref, edit)
	if written && stored.GetAnnotations()[annotation] != "" {
		c.mu.Lock()
		c.marked = append(c.marked, i.UID)
		c.mu.Unlock()
	}
	if errors.Is(err, errChanged) || k8s.IsNotFound(err, ref) || k8s.IsConflict(err, ref) {
		return nil // the next scan decides again
	}
	return err
}

// mark marks an identity that was not written since it was read, with the time of the last scan, which found it unused.
func (c *controller) mark(i *ciliumio.Identity) func(*unstructured.Unstructured) error {
	c.mu.Lock()
	at := c.lastScan.Format(time.RFC3339Nano)
	c.mu.Unlock()
	return func(u *unstructured.Unstructured) error {
		if u.GetUID() != i.UID.API() || u.GetResourceVersion() != i.ResourceVersion.String() {
			return errChanged
		}
		return unstructured.SetNestedField(u.Object, at, "metadata", "annotations", annotation)
	}
}

// removeMark removes the mark whatever else was written.
func removeMark(u *unstructured.Unstructured, i *ciliumio.Identity) error {
	if u.GetUID() != i.UID.API() {
		return errChanged
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", annotation)
	if len(u.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
	return nil
}
