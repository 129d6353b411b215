// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
)

// isOccupied is why some copies are not written.
const isOccupied = "not all EndpointSlices have copies: others have their names; an Event and the ServiceExport say why"

// createCopies creates copies for a derived Service that stays: the garbage collector deletes copies with their Service, and
// may be faster than the stream of Services. One whose name another EndpointSlice has is tried again later.
func (c *controller) createCopies(ctx context.Context, s *state, missing []*discoveryv1.EndpointSlice) error {
	c.occupied.Keep(s.key, func(name string) bool {
		return slices.ContainsFunc(missing, func(w *discoveryv1.EndpointSlice) bool { return w.Name == name })
	})
	defer func() { s.occupied = c.occupied.Others(s.key) }()
	if err := c.awaitDerived(ctx, s, missing); err != nil {
		return err
	}
	var errs []error
	for _, w := range missing {
		errs = append(errs, c.createCopy(ctx, s, w))
	}
	occupied, err := reconcile.SplitOccupied(errors.Join(errs...))
	var behind time.Duration // until one is tried again that the cache may not show yet
	for _, o := range occupied {
		if o.Own {
			behind = sooner(behind, o.Pause)
		} else {
			s.again = sooner(s.again, o.Pause)
		}
	}
	if err == nil && behind > 0 {
		return reconcile.RequeueAfter(behind)
	}
	return err
}

// awaitDerived returns nil if there is a copy that may be created, and the API server has the derived Service.
func (c *controller) awaitDerived(ctx context.Context, s *state, missing []*discoveryv1.EndpointSlice) error {
	if !slices.ContainsFunc(missing, func(w *discoveryv1.EndpointSlice) bool { return c.occupied.Rest(s.key, w.Name) == 0 }) {
		return nil
	}
	ref := s.derivedRef()
	derived, err := c.Client.Get(ctx, ref)
	if k8s.IsNotFound(err, ref) || err == nil && derived.GetDeletionTimestamp() != nil {
		return reconcile.Recheck()
	}
	return err
}

func (c *controller) createCopy(ctx context.Context, s *state, want *discoveryv1.EndpointSlice) error {
	ref := k8s.Ref{Resource: sliceCopies.Resource(), Namespace: want.Namespace, Name: want.Name}
	return reconcile.CreateUnlessOccupied(ctx, c.Client, &c.occupied, s.key, ref, want, func(has *unstructured.Unstructured) bool {
		labels := has.GetLabels()
		return labels[discoveryv1.LabelManagedBy] == copyManager && labels[mcsv1alpha1.LabelServiceName] == s.key.Name
	})
}

// sooner is the shorter one of two pauses, 0 being none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// textOfOccupied is what there is to say of EndpointSlices that have the names of copies, "" if there are none.
func (s *state) textOfOccupied() string {
	switch n := len(s.occupied); n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("the EndpointSlice %s exists and is not a copy for the derived Service: delete it", s.occupied[0])
	default:
		return fmt.Sprintf("%d EndpointSlices exist, %s first, and are not copies for the derived Service: delete them", n, s.occupied[0])
	}
}

// reportOccupied reports, as an Event and in the log when it is new, which EndpointSlices have the names of copies.
func (c *controller) reportOccupied(s *state) {
	text := s.textOfOccupied()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.unwritten[s.key]
	if c.unwritten[s.key] = text; text == "" {
		delete(c.unwritten, s.key)
	}
	if text == "" || text == before {
		return
	}
	c.Log.Warn("not all EndpointSlices have copies", "name", s.key.String(), "problem", text)
	c.Events.Warning(s.about(), "DerivedServiceRefused", text)
}
