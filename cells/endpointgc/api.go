// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
)

// api is the API server as this duty uses it.
type api struct {
	client  k8s.Client
	objects dynamic.NamespaceableResourceInterface
	metrics *gcMetrics
}

func newAPI(c k8s.Client, m *gcMetrics) (*api, error) {
	d, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, err
	}
	return &api{c, d.Resource(endpoints), m}, nil
}

// look asks the API server for a witness as it is now.
func (a *api) look(ctx context.Context) func(witness) (condition, error) {
	return func(w witness) (condition, error) {
		ref := k8s.Ref{Resource: pods, Namespace: w.key.Namespace, Name: w.key.Name}
		if w.kind == kindNode {
			ref.Resource = v2.CiliumNodeResource
		}
		obj, err := a.client.Get(ctx, ref)
		switch {
		case sweep.Missing(err):
			return absent, nil
		case err != nil:
			return alive, err
		case w.kind == kindNode:
			return alive, nil
		}
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		return podCondition(phase), nil
	}
}

// delete deletes an endpoint that is still the one meant.
func (a *api) delete(ctx context.Context, key slim.Key, only metav1.Preconditions) (sweep.Outcome, error) {
	outcome, err := sweep.OutcomeOf(a.objects.Namespace(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: &only,
	}))
	a.metrics.deleted(outcome)
	return outcome, err
}

// setOwnerUID changes the uid of one owner of an endpoint that is as it was seen.
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
	_, err = a.objects.Namespace(e.Namespace.String()).Patch(ctx, e.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

func trigger(key slim.Key, revision string) k8s.Trigger {
	return k8s.Trigger{Kind: "CiliumEndpoint", Namespace: key.Namespace, Name: key.Name, ResourceVersion: revision}
}
