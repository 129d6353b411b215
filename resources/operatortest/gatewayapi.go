// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/clustertest/gatewayapi"
)

// Definitions are CustomResourceDefinitions of a cluster.
type Definitions struct {
	t      testing.TB
	client *apiextensionsclient.ApiextensionsV1Client
}

// NewDefinitions returns those of a cluster.
func NewDefinitions(t testing.TB, c *clustertest.Cluster) *Definitions {
	t.Helper()
	config := c.AdminConfig(t)
	client, err := apiextensionsclient.NewForConfigAndClient(config, HTTPClient(t, config))
	if err != nil {
		t.Fatal(err)
	}
	return &Definitions{t, client}
}

// InstallGatewayAPI creates or updates the definitions of a channel of the Gateway API, standard or experimental, by their
// plurals, from the files of its Go module.
func (d *Definitions) InstallGatewayAPI(channel string, plurals ...string) {
	d.t.Helper()
	all, err := gatewayapi.Definitions(d.t.Context(), channel, plurals...)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, one := range all {
		want := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object, want); err != nil {
			d.t.Fatal(err)
		}
		d.apply(want)
	}
}

// Apply creates or updates a definition, and waits until it is served.
func (d *Definitions) Apply(text []byte) {
	d.t.Helper()
	want := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, want); err != nil {
		d.t.Fatal(err)
	}
	want.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	d.apply(want)
}

func (d *Definitions) apply(want *apiextensionsv1.CustomResourceDefinition) {
	d.t.Helper()
	Eventually(d.t, want.Name+" is applied", func() bool {
		has, err := d.client.CustomResourceDefinitions().Get(d.t.Context(), want.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = d.client.CustomResourceDefinitions().Create(d.t.Context(), want, metav1.CreateOptions{})
		case err == nil && has.DeletionTimestamp != nil:
			return false
		case err == nil:
			want.ResourceVersion = has.ResourceVersion
			_, err = d.client.CustomResourceDefinitions().Update(d.t.Context(), want, metav1.UpdateOptions{})
			want.ResourceVersion = ""
		}
		return err == nil
	})
	Eventually(d.t, want.Name+" is established", func() bool {
		has, err := d.client.CustomResourceDefinitions().Get(d.t.Context(), want.Name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(has.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
	})
}

// Delete deletes definitions, and waits until they are gone. It may be called when the test has ended.
func (d *Definitions) Delete(names ...string) {
	d.t.Helper()
	for _, name := range names {
		Eventually(d.t, name+" is gone", func() bool {
			err := d.client.CustomResourceDefinitions().Delete(context.WithoutCancel(d.t.Context()), name, metav1.DeleteOptions{})
			return apierrors.IsNotFound(err)
		})
	}
}

// AwaitPublished waits until the API server publishes, in the OpenAPI document of a version such as cilium.io/v2, a field of
// that name, or none any more: it does so a second after a definition was changed.
func (d *Definitions) AwaitPublished(version, field string, want bool) {
	d.t.Helper()
	Eventually(d.t, fmt.Sprintf("%s publishes %s: %v", version, field, want), func() bool {
		text, err := d.client.RESTClient().Get().AbsPath("/openapi/v3/apis/" + version).DoRaw(d.t.Context())
		return err == nil && strings.Contains(string(text), strconv.Quote(field)+":") == want
	})
}

// Serve has a definition serve one version alone, and store it.
func (d *Definitions) Serve(name, version string) {
	d.t.Helper()
	Eventually(d.t, name+" serves "+version, func() bool {
		has, err := d.client.CustomResourceDefinitions().Get(d.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		for i := range has.Spec.Versions {
			v := &has.Spec.Versions[i]
			v.Served, v.Storage = v.Name == version, v.Name == version
		}
		_, err = d.client.CustomResourceDefinitions().Update(d.t.Context(), has, metav1.UpdateOptions{})
		return err == nil
	})
}
