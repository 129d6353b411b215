// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import (
	"context"
	"errors"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
)

// write carries out a plan. Endpoints are added before others are removed.
func (c *controller) write(ctx context.Context, p plan) error {
	var errs []error
	for _, slice := range p.create {
		errs = append(errs, c.written("create", c.create(ctx, slice)))
	}
	for _, change := range p.update {
		errs = append(errs, c.written("update", c.update(ctx, change)))
	}
	for _, slice := range p.remove {
		errs = append(errs, c.written("delete", k8s.Delete(ctx, c.Client, refTo(slice))))
	}
	if n := len(errs); n > 0 {
		c.Metrics.ChangedPerSync.WithLabelValues("Disabled").Observe(float64(n)) // slices of this duty have no hints
		c.Metrics.Added.Observe(float64(p.added))
		c.Metrics.Removed.Observe(float64(p.removed))
	}
	return errors.Join(errs...)
}

// written counts a write.
func (c *controller) written(operation string, err error) error {
	if err == nil {
		c.Metrics.Changes.WithLabelValues(operation).Inc()
	}
	return err
}

func refTo(slice *meshSlice) k8s.Ref {
	return k8s.Ref{Resource: meshSlices.Resource(), Namespace: slice.Namespace.String(), Name: slice.Name, UID: slice.UID.API()}
}

// create creates a slice. One that exists is in the cache soon.
func (c *controller) create(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	_, err := k8s.Create(ctx, c.Client, meshSlices.Resource(), slice)
	ref := k8s.Ref{Resource: meshSlices.Resource(), Namespace: slice.Namespace, Name: slice.Name}
	if k8s.IsAlreadyExists(err, ref) {
		return reconcile.Recheck()
	}
	return err
}

// update replaces endpoints, labels and the owner. One that is gone leaves the cache soon.
func (c *controller) update(ctx context.Context, ch change) error {
	ref := refTo(ch.is)
	want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ch.want)
	if err != nil {
		return err
	}
	_, _, err = c.Client.Modify(ctx, ref, func(slice *unstructured.Unstructured) error {
		slice.SetLabels(ch.want.Labels)
		slice.SetOwnerReferences(ch.want.OwnerReferences)
		slice.Object["endpoints"] = want["endpoints"] // whole: no endpoint keeps the hostname of another
		return nil
	})
	if k8s.IsNotFound(err, ref) {
		return reconcile.Recheck()
	}
	return err
}
