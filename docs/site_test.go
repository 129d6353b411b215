// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

const leaseName = "cilium-operator-resource-lock"

// site is the real control plane that tests share.
type site struct {
	*clustertest.Cluster
	t       *testing.T
	core    kubernetes.Interface
	dynamic dynamic.Interface
}

func newSite(t *testing.T) *site {
	t.Helper()
	t.Setenv(k8s.StrictCause, "1") // a write without a cause fails
	c := clustertest.Shared(t)
	config := c.AdminConfig(t)
	config.WarningHandler = rest.NoWarnings{}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	core, err := kubernetes.NewForConfigAndClient(config, transport)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfigAndClient(config, transport)
	if err != nil {
		t.Fatal(err)
	}
	return &site{c, t, core, dyn}
}

func (s *site) namespace() string {
	s.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "docs-"}}
	made, err := s.core.CoreV1().Namespaces().Create(s.t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return made.Name
}

// addNode makes a Node and its CiliumNode, which go with the test. It waits for
// the definition.
func (s *site) addNode(name string, labels map[string]string, spec map[string]any) {
	s.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := s.core.CoreV1().Nodes().Create(s.t.Context(), node, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	ciliumNode := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
	until(s.t, "a CiliumNode can be made", func() bool {
		_, err := s.dynamic.Resource(v2.CiliumNodeResource).Create(s.t.Context(), ciliumNode, metav1.CreateOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			s.t.Fatal(err)
		}
		return err == nil
	})
	s.t.Cleanup(func() {
		ctx := context.Background()
		err := errors.Join(s.core.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}),
			s.dynamic.Resource(v2.CiliumNodeResource).Delete(ctx, name, metav1.DeleteOptions{}))
		if err != nil {
			s.t.Error(err)
		}
	})
}

// field is a text of a CiliumNode, or of its first element where it is a list;
// "" where there is none.
func (s *site) field(name string, path ...string) string {
	s.t.Helper()
	u, err := s.dynamic.Resource(v2.CiliumNodeResource).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
	if list, ok := value.([]any); ok && len(list) > 0 {
		value = list[0]
	}
	text, _ := value.(string)
	return text
}

func (s *site) lease(namespace string) *coordinationv1.Lease {
	s.t.Helper()
	l, err := s.core.CoordinationV1().Leases(namespace).Get(s.t.Context(), leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{}
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func (s *site) holder(namespace string) string {
	if holder := s.lease(namespace).Spec.HolderIdentity; holder != nil {
		return *holder
	}
	return ""
}

// running is an operator in the test's own process.
type running struct {
	*hive.Hive
	log  *logtest.Buffer
	stop func()
}

// start runs an operator of the given cells; it is stopped with the test at the
// latest.
func start(t *testing.T, set cell.Cell, args ...string) *running {
	t.Helper()
	r := &running{log: &logtest.Buffer{}}
	r.Hive = hive.New("operator", set, hive.MetricsNamespace("cilium_operator"), hive.LogTo(r.log), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := r.FlagSet()
	own := []string{"--operator-api-serve-addr=127.0.0.1:0", "--enable-gops=false", "--operator-sock-path=" + socketPath(t)}
	if err := errors.Join(flags.Parse(append(own, args...)), r.Configure(flags)); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.stop = sync.OnceFunc(func() {
		if err := r.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v\n%s", err, r.log)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// socketPath is short: a socket's path has hardly a hundred letters.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "docs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "sock")
}

// until waits for a state.
var until = waittest.Until

// writers are the modules that sent writes of a resource through a proxy.
func writers(t *testing.T, p *clustertest.Proxy, resource string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, q := range p.Requests(t, 0) {
		if q.Resource == resource && q.Mutates() {
			_, module, _ := strings.Cut(strings.TrimSuffix(q.UserAgent, ")"), "(")
			found[module]++
		}
	}
	return found
}
