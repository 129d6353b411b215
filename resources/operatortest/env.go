// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/skep-operator/skep/resources/clustertest"
)

// Env is a real API server for one test: an administrator's clients, and a proxy of its
// own for operators, which records requests and injects faults.
type Env struct {
	T       testing.TB
	Core    kubernetes.Interface
	Dynamic dynamic.Interface
	Proxy   *clustertest.Proxy
	// Namespace is a name for a namespace of the test's own.
	Namespace string
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// NewEnv is an Env of a cluster, in which the CRDs of these kinds are established.
func NewEnv(t testing.TB, c *clustertest.Cluster, kinds ...string) *Env {
	t.Helper()
	config := c.AdminConfig(t)
	config.QPS = -1
	client := HTTPClient(t, config)
	e := &Env{T: t, Proxy: c.NewProxy(t), Namespace: newName(t.Name())}
	var err error
	if e.Core, err = kubernetes.NewForConfigAndClient(config, client); err != nil {
		t.Fatal(err)
	}
	if e.Dynamic, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		t.Fatal(err)
	}
	Define(t, c.AdminConfig(t), kinds...)
	return e
}

// newName makes a test's name one that an object may have, and that no other run of the
// test has.
func newName(test string) string {
	name := notInNames.ReplaceAllString(strings.ToLower(test), "-")
	return fmt.Sprintf("%s-%s", strings.Trim(name[:min(len(name), 50)], "-"), rand.String(8)) // 63 at most
}

// CreateNamespace creates the test's own namespace.
func (e *Env) CreateNamespace() {
	e.T.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.Namespace}}
	if _, err := e.Core.CoreV1().Namespaces().Create(e.T.Context(), ns, metav1.CreateOptions{}); err != nil {
		e.T.Fatal(err)
	}
}

// Clear deletes all objects of resources, in all namespaces: what earlier tests left.
func (e *Env) Clear(resources ...schema.GroupVersionResource) {
	e.T.Helper()
	for _, r := range resources {
		Eventually(e.T, "there are no "+r.Resource, func() bool {
			list, err := e.Dynamic.Resource(r).List(e.T.Context(), metav1.ListOptions{})
			if err != nil {
				e.T.Fatal(err)
			}
			for _, u := range list.Items {
				err := e.Dynamic.Resource(r).Namespace(u.GetNamespace()).Delete(e.T.Context(), u.GetName(), metav1.DeleteOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					e.T.Fatal(err)
				}
			}
			return len(list.Items) == 0
		})
	}
}

// Kubeconfig is that of an administrator, through the proxy.
func (e *Env) Kubeconfig() string { return e.Proxy.Kubeconfig() }

// As is the kubeconfig of a user with these permissions alone, through the proxy, until
// the test ends.
func (e *Env) As(user string, rules ...rbacv1.PolicyRule) (kubeconfig string) {
	e.T.Helper()
	user += "-" + e.Namespace
	Allow(e.T, e.Core, user, rules...)
	return e.Proxy.UserKubeconfig(e.T, user)
}

// StartKnowing starts an operator whose watches of a resource show nothing before it knows its role: what it asks for because
// of these objects is then within its role.
func (e *Env) StartKnowing(resource string, start func() *Operator) *Operator {
	e.T.Helper()
	held := e.Proxy.HoldWatch(e.T, resource, 0)
	o := start()
	o.Log().Wait(e.T, "connected to the API server")
	held.Remove(e.T)
	return o
}

// CheckHealthy checks that nothing is degraded, and that no request was forbidden. Attempts that take long on a slow machine, of
// which the API server may show the result before they know, are waited for, and so is an etcd that answers no check in time.
func (e *Env) CheckHealthy(o *Operator) {
	e.T.Helper()
	degraded := ""
	Eventually(e.T, "attempts and checks of etcd are over", func() bool {
		degraded = o.Degraded("")
		return !strings.Contains(degraded, ".attempts: ") && !strings.Contains(degraded, "no etcd endpoint answers")
	})
	if degraded != "" {
		e.T.Errorf("the operator is degraded:\n%s", degraded)
	}
	for _, r := range e.Proxy.Requests(e.T, 0) {
		if r.Status == 403 {
			e.T.Errorf("forbidden: %s %s", r.Verb, r.Path)
		}
	}
}
