// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import (
	"context"
	"errors"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
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

// create creates a slice. One that exists is in the cache soon, or it is another's, and then the next attempt has another name.
func (c *controller) create(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	ref := k8s.Ref{Resource: meshSlices.Resource(), Namespace: slice.Namespace, Name: slice.Name}
	of := slim.Key{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
	return reconcile.CreateUnlessOccupied(ctx, c.Client, &c.occupied, of, ref, slice, func(has *unstructured.Unstructured) bool {
		labels := has.GetLabels()
		return labels[discoveryv1.LabelManagedBy] == manager && labels[discoveryv1.LabelServiceName] == of.Name && labels[clusterLabel] == slice.Labels[clusterLabel]
	})
}

// mostOccupied is how many names of slices of a Service are remembered that others have.
const mostOccupied = 5000

// afterOccupied is the error of a reconciliation without those of slices whose names others have: these get other names, the later the more there were.
func (c *controller) afterOccupied(key slim.Key, err error) error {
	occupied, err := reconcile.SplitOccupied(err)
	if err != nil || len(occupied) == 0 {
		return err
	}
	others := len(c.occupied.Others(key))
	if others > mostOccupied {
		c.occupied.Keep(key, nil)
	}
	pause := min(time.Duration(1+others/10)*time.Second, 5*time.Minute)
	for _, o := range occupied {
		if o.Own {
			pause = max(pause, o.Pause)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused[key] = time.Now().Add(pause)
	return reconcile.RequeueAfter(pause)
}

// remainingPause is how long no slices of a Service are created. What the Service and remote clusters change meanwhile does not cut it short: each attempt is a
// request for each slice, and others may have the names that come next, too.
func (c *controller) remainingPause(key slim.Key) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := time.Until(c.paused[key])
	if rest <= 0 {
		delete(c.paused, key)
		return 0
	}
	return rest
}

// shows reports whether there is a slice of a name among those that the cache shows.
func shows(existing map[string][]*meshSlice, name string) bool {
	for _, all := range existing {
		if slices.ContainsFunc(all, func(s *meshSlice) bool { return s.Name == name }) {
			return true
		}
	}
	return false
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
