// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
)

// api is the requests of this duty to the API server.
type api struct {
	client  k8s.Client
	metrics *gcMetrics
}

func newAPI(c k8s.Client, m *gcMetrics) *api { return &api{c, m} }

func refOf(key slim.Key) k8s.Ref {
	return k8s.Ref{Resource: endpoints, Namespace: key.Namespace, Name: key.Name}
}

// ownerState reads owners from the API server.
func (a *api) ownerState(ctx context.Context) func(owner) (ownerState, error) {
	return func(o owner) (ownerState, error) {
		ref := k8s.Ref{Resource: pods, Namespace: o.key.Namespace, Name: o.key.Name}
		if o.kind == kindNode {
			ref.Resource = v2.CiliumNodeResource
		}
		obj, err := a.client.Get(ctx, ref)
		switch {
		case k8s.IsNotFound(err, ref):
			return absent, nil
		case err != nil:
			return alive, err
		case o.kind == kindNode:
			return alive, nil
		}
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		return podState(phase), nil
	}
}

// delete deletes an endpoint with preconditions.
func (a *api) delete(ctx context.Context, key slim.Key, only k8s.Preconditions) (sweep.Outcome, error) {
	only.Propagation = metav1.DeletePropagationBackground
	outcome, err := sweep.OutcomeOf(a.client.Delete(ctx, refOf(key), only), refOf(key))
	a.metrics.countDelete(outcome)
	return outcome, err
}

// setOwnerUID changes the uid of one owner reference of an endpoint that was not written since it was read.
func (a *api) setOwnerUID(ctx context.Context, e *ciliumio.Endpoint, owner int, uid slim.UID) error {
	path := fmt.Sprintf("/metadata/ownerReferences/%d/uid", owner)
	patch, err := json.Marshal([]map[string]string{
		{"op": "test", "path": "/metadata/uid", "value": e.UID.String()},
		{"op": "test", "path": "/metadata/resourceVersion", "value": e.ResourceVersion.String()},
		{"op": "test", "path": path, "value": e.Owners[owner].UID.String()},
		{"op": "replace", "path": path, "value": uid.String()},
	})
	if err != nil {
		return err
	}
	ref := refOf(e.Key())
	stored, err := a.client.Patch(ctx, ref, patch)
	if err != nil {
		return err
	}
	if owners := stored.GetOwnerReferences(); owner >= len(owners) || owners[owner].UID != uid.API() {
		return &k8s.NotStoredError{Ref: ref, Field: fmt.Sprintf("metadata.ownerReferences[%d].uid", owner)}
	}
	return nil
}

func trigger(key slim.Key, revision string) k8s.Trigger {
	return k8s.Trigger{Kind: ciliumio.Endpoints.Name(), Namespace: key.Namespace, Name: key.Name, ResourceVersion: revision}
}
