// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"context"
	"fmt"
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/k8s"
)

var crdResource = resource.WithVersion("v1")

// crdClient reads and writes CRDs.
type crdClient struct {
	client  k8s.Client
	edition api.Edition
}

func ref(k api.Kind) k8s.Ref { return k8s.Ref{Resource: crdResource, Name: k.CRDName()} }

func (c crdClient) get(ctx context.Context, k api.Kind) (*unstructured.Unstructured, error) {
	return c.client.Get(ctx, ref(k))
}

func (c crdClient) create(ctx context.Context, ours *unstructured.Unstructured) error {
	_, err := c.client.Create(ctx, crdResource, ours)
	return err
}

// update replaces the spec and sets our version. Other labels stay.
func (c crdClient) update(ctx context.Context, k api.Kind, ours *unstructured.Unstructured) error {
	_, _, err := c.client.Modify(ctx, ref(k), func(u *unstructured.Unstructured) error {
		if decide(k, c.edition, u, ours).action != update { // another replica has done it
			return nil
		}
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, ours.GetLabels())
		u.SetLabels(labels)
		u.Object["spec"] = runtime.DeepCopyJSONValue(ours.Object["spec"])
		return nil
	})
	if apierrors.IsInvalid(err) {
		return fmt.Errorf("our CRD cannot replace the installed one; migrate its objects and delete it to have ours created: %w", err)
	}
	return err
}

// decodeConditions omits the spec, whose schemas take long to decode.
func decodeConditions(u *unstructured.Unstructured) ([]apiextensionsv1.CustomResourceDefinitionCondition, error) {
	crd, content := apiextensionsv1.CustomResourceDefinition{}, maps.Clone(u.Object)
	delete(content, "spec")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &crd); err != nil {
		return nil, fmt.Errorf("reading %s: %w", u.GetName(), err)
	}
	return crd.Status.Conditions, nil
}
