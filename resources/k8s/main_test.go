// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(clustertest.Wrap(m)) }

// openTransport makes a door to an API server, as the cell does.
func openTransport(t *testing.T, change func(*Config)) *guardedTransport {
	t.Helper()
	c := DefaultConfig
	change(&c)
	d, err := newTransport(c, cell.BuildInfo{Name: "operator", Version: "1.2.3"}, slog.New(slog.NewTextHandler(io.Discard, nil)), newMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.servers.reconnect)
	return d
}

func through(kubeconfig string) func(*Config) {
	return func(c *Config) { c.K8sKubeconfigPath = kubeconfig }
}

// lead opens a term that ends with the test.
func (d *guardedTransport) lead(t *testing.T) *leading.Fence {
	t.Helper()
	f := leading.NewFence(leading.SystemClock, leading.SystemClock.Now(), time.Hour)
	t.Cleanup(f.Close)
	if err := d.open(f); err != nil {
		t.Fatal(err)
	}
	return f
}

// client is that of a module in the term that was opened last.
func (d *guardedTransport) client(t *testing.T, module string) *client {
	t.Helper()
	report := newContentionReport(d.contention, health.NewTree().Reporter(module), d.log)
	t.Cleanup(report.stop)
	c, err := newClient(&moduleTransport{guardedTransport: d, module: module, writer: d.term.Load()}, newPermissions(), report)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// why is the context of a write by a mechanism.
func why(t *testing.T) context.Context {
	return WithCause(t.Context(), &Cause{Rule: "test rule", Triggers: []Trigger{{Kind: "Test", Name: t.Name()}}})
}

// admin goes straight to the cluster, past every door.
func admin(t *testing.T, c *clustertest.Cluster) *kubernetes.Clientset {
	t.Helper()
	transport, err := rest.HTTPClientFor(c.AdminConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(c.AdminConfig(t), transport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return client
}

func newNamespace(t *testing.T, c *clustertest.Cluster) string {
	t.Helper()
	ns, err := admin(t, c).CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

func newConfigMap(namespace, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}

// serve is a server that shows what arrives, for questions about the wire.
func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

// until waits for a state.
var until = waittest.Until
