// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeips_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/docs/examples/cells/nodeips"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// On a real API server and etcd: a Node with an internal address has a key.
func TestMirror(t *testing.T) {
	cluster := clustertest.Shared(t)
	env := operatortest.NewEnv(t, cluster)
	etcd := kvstoretest.Connect(t, cluster.Etcd())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: env.Namespace}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
	}}
	if _, err := env.Core.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	op := operatortest.Start(t, cell.Set(kvstore.Cell, nodeips.Cell), env.Kubeconfig(),
		"--kvstore=etcd", "--kvstore-opt=etcd.address="+etcd.Endpoints()[0])
	key := "cilium/state/nodeips/v1/default/" + node.Name
	operatortest.Eventually(t, "the Node has a key", func() bool { kv := etcd.Get(key); return kv != nil && string(kv.Value) == `["10.0.0.1"]` })
	if err := env.Core.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "its key is deleted", func() bool { return etcd.Get(key) == nil })
	operatortest.Eventually(t, "etcd's health is known", func() bool { return op.Degraded("kvstore") == "" })
	env.CheckHealthy(op)
}
