// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/api"
)

// InstallCRDs installs the definitions that a load needs and that are missing,
// and waits until all of them are served.
func InstallCRDs(ctx context.Context, config *rest.Config) error {
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, k := range customKinds {
		definition, err := definitionOf(k)
		if err != nil {
			return err
		}
		if _, err := crds.Create(ctx, definition, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("install %s: %w", definition.Name, err)
		}
		for {
			crd, err := crds.Get(ctx, definition.Name, metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("wait until %s is served: %w", definition.Name, err)
			}
			if established(crd) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait until %s is served: %w", definition.Name, context.Cause(ctx))
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

func definitionOf(k *kind) (*apiextensionsv1.CustomResourceDefinition, error) {
	known, ok := api.KindNamed(k.gvk.Kind)
	if !ok {
		return nil, fmt.Errorf("there is no definition of %s", k.gvk.Kind)
	}
	return known.CRD(api.Edition{})
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}
