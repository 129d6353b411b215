// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package termtest

import (
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/skep-operator/skep/resources/clustertest"
)

// Site is a real API server for one test: an administrator's clients, and a door for
// operators.
type Site struct {
	T       testing.TB
	Core    kubernetes.Interface
	Dynamic dynamic.Interface
	Proxy   *clustertest.Proxy
	// Namespace is a name for the test's own namespace, another for each site.
	Namespace string
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// NewSite is a site where kinds are defined.
func NewSite(t testing.TB, c *clustertest.Cluster, kinds ...string) *Site {
	t.Helper()
	config := c.AdminConfig(t)
	config.QPS = -1
	client := HTTPClient(t, config)
	s := &Site{T: t, Proxy: c.NewProxy(t), Namespace: newName(t.Name())}
	var err error
	if s.Core, err = kubernetes.NewForConfigAndClient(config, client); err != nil {
		t.Fatal(err)
	}
	if s.Dynamic, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		t.Fatal(err)
	}
	Define(t, c.AdminConfig(t), kinds...)
	return s
}

// names is how many were made.
var names atomic.Int64

// newName makes a test's name one that an object may have, and that no other run of
// the test has.
func newName(test string) string {
	name := notInNames.ReplaceAllString(strings.ToLower(test), "-")
	return fmt.Sprintf("%s-%d", name[:min(len(name), 56)], names.Add(1)) // 63 at most
}

// MakeNamespace makes the test's own namespace.
func (s *Site) MakeNamespace() {
	s.T.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	if _, err := s.Core.CoreV1().Namespaces().Create(s.T.Context(), ns, metav1.CreateOptions{}); err != nil {
		s.T.Fatal(err)
	}
}

// Clear deletes what earlier tests left of resources, in all namespaces.
func (s *Site) Clear(resources ...schema.GroupVersionResource) {
	s.T.Helper()
	for _, r := range resources {
		Eventually(s.T, "there are no "+r.Resource, func() bool {
			list, err := s.Dynamic.Resource(r).List(s.T.Context(), metav1.ListOptions{})
			if err != nil {
				s.T.Fatal(err)
			}
			for _, u := range list.Items {
				err := s.Dynamic.Resource(r).Namespace(u.GetNamespace()).Delete(s.T.Context(), u.GetName(), metav1.DeleteOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					s.T.Fatal(err)
				}
			}
			return len(list.Items) == 0
		})
	}
}

// As is the way of a user with a role, until the test ends.
func (s *Site) As(user string, rules ...rbacv1.PolicyRule) (kubeconfig string) {
	s.T.Helper()
	user += "-" + s.Namespace
	Allow(s.T, s.Core, user, rules...)
	return s.Proxy.UserKubeconfig(s.T, user)
}

// Calm checks that nothing is wrong, and that nothing was forbidden.
func (s *Site) Calm(o *Operator) {
	s.T.Helper()
	if d := o.Degraded(""); d != "" {
		s.T.Errorf("it is degraded:\n%s", d)
	}
	for _, r := range s.Proxy.Requests(s.T, 0) {
		if r.Status == 403 {
			s.T.Errorf("forbidden: %s %s", r.Verb, r.Path)
		}
	}
}
