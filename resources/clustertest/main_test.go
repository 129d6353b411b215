// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) {
	if fail := os.Getenv(dividedEnv); fail != "" {
		os.Exit(Divide(printingRunner{fail}, "^TestA", "^TestB").Run())
	}
	waittest.Main(Wrap(m))
}

// newClient speaks protobuf, as the operator does, over connections of its own.
func newClient(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(config, transport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return client
}

// newNamespace makes a namespace for a test.
func newNamespace(t *testing.T, c *Cluster) string {
	t.Helper()
	ns, err := newClient(t, c.AdminConfig(t)).CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

func newConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// until waits for a state.
func until(t *testing.T, what string, reached func(ctx context.Context) bool) {
	t.Helper()
	waittest.Until(t, what, func() bool { return reached(t.Context()) })
}
