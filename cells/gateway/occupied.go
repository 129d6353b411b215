// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// createPort creates an EndpointSlice. One that exists is in the cache soon, or is another's: that of an earlier Gateway of the name goes with it.
func (c *controller) createPort(ctx context.Context, gateway slim.Key, want *discoveryv1.EndpointSlice) error {
	ref := k8s.Ref{Resource: sliceKind, Namespace: want.Namespace, Name: want.Name}
	return reconcile.CreateUnlessOccupied(ctx, c.Client, &c.occupied, gateway, ref, want, func(has *unstructured.Unstructured) bool {
		owner, labels := metav1.GetControllerOf(has), has.GetLabels()
		return labels[discoveryv1.LabelManagedBy] == portSliceManager && labels[gatewayLabel] != "" && owner != nil && owner.Kind == route.KindGateway && owner.Name == gateway.Name
	})
}

// isOccupiedByOthers reports whether nothing has failed, or nothing but what others have the names of: nothing waits for that.
func isOccupiedByOthers(err error) bool {
	occupied, failed := reconcile.SplitOccupied(err)
	return failed == nil && !slices.ContainsFunc(occupied, func(o *reconcile.OccupiedError) bool { return o.Own })
}

// occupied records which EndpointSlices of a Gateway are not created, since there are others of their names, and returns what has failed otherwise.
func (o *outcome) occupied(err error) error {
	occupied, err := reconcile.SplitOccupied(err)
	for _, e := range occupied {
		if o.again == 0 || e.Pause < o.again {
			o.again = max(e.Pause, time.Second)
		}
		if !e.Own && o.failure == "" {
			o.failure = e.Error()
		}
	}
	return err
}
