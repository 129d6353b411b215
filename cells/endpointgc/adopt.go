// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// adoptOne makes the pod that lives the owner of an endpoint, in the place of an
// earlier pod of its name, if the endpoint is that pod's beyond doubt and the role
// allows it.
func (c *collector) adoptOne(ctx context.Context, key slim.Key) error {
	ref := k8s.Ref{Resource: endpoints, Namespace: key.Namespace, Name: key.Name}
	e, ok := c.views.endpoints.Get(key)
	if !ok || !c.Permissions.Known() || c.Permissions.Denies("patch", ref) {
		return nil
	}
	owner, pod, stale := staleOwner(e, c.views.pod)
	if !stale || !sameAddresses(e, pod) {
		return nil
	}
	err := c.API.setOwnerUID(ctx, e, owner, pod.UID)
	switch {
	case err == nil:
		c.Log.Info("made the pod that lives the owner of its endpoint", "endpoint", key.String())
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return nil // it has changed meanwhile: the next survey looks again
	}
	return err
}
