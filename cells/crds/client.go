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
type crdClient struct{ client k8s.Client }

func ref(k api.Kind) k8s.Ref { return k8s.Ref{Resource: crdResource, Name: k.CRDName()} }

func (c crdClient) get(ctx context.Context, k api.Kind) (*unstructured.Unstructured, error) {
	return c.client.Get(ctx, ref(k))
}

func (c crdClient) create(ctx context.Context, ours *apiextensionsv1.CustomResourceDefinition) error {
	content, err := encode(ours)
	if err != nil {
		return err
	}
	_, err = c.client.Create(ctx, crdResource, &unstructured.Unstructured{Object: content})
	return err
}

// update replaces the spec and sets our version. Other labels stay.
func (c crdClient) update(ctx context.Context, k api.Kind, ours *apiextensionsv1.CustomResourceDefinition) error {
	content, err := encode(ours)
	if err != nil {
		return err
	}
	_, _, err = c.client.Modify(ctx, ref(k), func(u *unstructured.Unstructured) error {
		now, err := decode(u)
		if err != nil {
			return err
		}
		if decide(k, now, ours).action != update { // another replica has done it
			return nil
		}
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, ours.Labels)
		u.SetLabels(labels)
		u.Object["spec"] = runtime.DeepCopyJSONValue(content["spec"])
		return nil
	})
	if apierrors.IsInvalid(err) {
		return fmt.Errorf("our CRD cannot replace the installed one; migrate its objects and delete it to have ours created: %w", err)
	}
	return err
}

// encode returns a CRD without its status.
func encode(crd *apiextensionsv1.CustomResourceDefinition) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", crd.Name, err)
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return content, nil
}

// decodeMetadata omits the spec, whose schemas take most of the time of decode.
func decodeMetadata(u *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	content := maps.Clone(u.Object)
	delete(content, "spec")
	return decode(&unstructured.Unstructured{Object: content})
}

func decode(u *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
		return nil, fmt.Errorf("reading %s: %w", u.GetName(), err)
	}
	return crd, nil
}
