// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skep-operator/skep/resources/k8s"
)

// PatchRefused is the error of an attempt whose JSON patch, which tests the resourceVersion of an object, was not applied.
// If the object has changed it is no failure: the key is rechecked. The API server answers the same if a test fails and if
// the patched object is not valid, so the object is read.
func PatchRefused(ctx context.Context, client k8s.Client, ref k8s.Ref, revision string, refusal error) error {
	var status apierrors.APIStatus
	if k8s.IsNotFound(refusal, ref) || k8s.IsConflict(refusal, ref) {
		return Recheck()
	}
	if !errors.As(refusal, &status) || status.Status().Code != http.StatusUnprocessableEntity {
		return refusal
	}
	ref.Subresource = ""
	at := ref
	at.Subresource = "status" // the rest of a large object need not be decoded
	now, err := client.Get(ctx, at)
	switch {
	case k8s.IsNotFound(err, ref), err == nil && now.GetResourceVersion() != revision:
		return Recheck()
	case err != nil:
		return err
	}
	return refusal
}
