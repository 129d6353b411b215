// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"context"
	"errors"
	"net/http"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/clustertest"
)

// HTTPClient is a client with connections of its own, which end with the test.
func HTTPClient(t testing.TB, config *rest.Config) *http.Client {
	t.Helper()
	config.Proxy = http.ProxyFromEnvironment // keeps the transport out of client-go's cache
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
	return client
}

// Define creates the CRDs of kinds that are not there, and waits until the kinds are served.
func Define(t testing.TB, admin *rest.Config, kinds ...string) {
	t.Helper()
	client := HTTPClient(t, admin)
	definitions, err := apiextensionsclient.NewForConfigAndClient(admin, client)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfigAndClient(admin, client)
	if err != nil {
		t.Fatal(err)
	}
	resources := make([]schema.GroupVersionResource, len(kinds))
	for i, name := range kinds {
		kind, known := api.KindNamed(name)
		if !known {
			t.Fatalf("there is no kind %s", name)
		}
		crd, err := kind.CRD(release.Newest().Edition()) // as operators without options have it
		if err != nil {
			t.Fatal(err)
		}
		Eventually(t, name+" is defined", func() bool {
			_, err := definitions.CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) && !isServerError(err) {
				t.Fatal(err)
			}
			return !isServerError(err)
		})
		resources[i] = kind.Resource
	}
	for i, resource := range resources {
		Eventually(t, kinds[i]+" is served", func() bool {
			_, err := objects.Resource(resource).List(t.Context(), metav1.ListOptions{Limit: 1})
			return err == nil
		})
	}
}

// isServerError reports whether the API server could not do what it was asked for, as where its etcd takes more than some seconds.
func isServerError(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}

// Allow gives a user permissions until the test ends, by a ClusterRole of the user's name.
// It returns when the API server knows of them.
func Allow(t testing.TB, core kubernetes.Interface, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	roles, bindings := core.RbacV1().ClusterRoles(), core.RbacV1().ClusterRoleBindings()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	if _, err := roles.Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := errors.Join(bindings.Delete(ctx, user, metav1.DeleteOptions{}), roles.Delete(ctx, user, metav1.DeleteOptions{}))
		if err != nil {
			t.Error(err)
		}
	})
	clustertest.AwaitAllowed(t, core, user, rules)
}
