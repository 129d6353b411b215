// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// fixOwnerUID sets the uid of the owner reference of an endpoint to that of the running pod, instead of an earlier pod of
// its name, if their addresses are equal and the role allows it.
func (c *controller) fixOwnerUID(ctx context.Context, key slim.Key) error {
	ref := refOf(key)
	e, ok := c.stores.endpoints.Get(key)
	if !ok || !c.Permissions.Known() || c.Permissions.Denies("patch", ref) {
		return nil
	}
	owner, pod, stale := staleOwner(e, c.stores.pod)
	if !stale || !sameAddresses(e, pod) {
		return nil
	}
	err := c.API.setOwnerUID(ctx, e, owner, pod.UID)
	switch {
	case err == nil:
		c.Log.Info("updated ownerReference of CiliumEndpoint to the running pod", "endpoint", key.String())
	case k8s.IsNotFound(err, ref), k8s.IsConflict(err, ref), apierrors.IsInvalid(err):
		return nil // it was changed: the next scan decides again
	}
	return err
}
