// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// world is a real API server, with a namespace for the agents of one test, and an etcd of the test's own.
type world struct {
	*operatortest.Env
	etcd    *kvstoretest.Etcd
	objects dynamic.ResourceInterface // CiliumNodes
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Env: operatortest.NewEnv(t, clustertest.Shared(t), "CiliumNode"), etcd: kvstoretest.Start(t, 1)}
	w.objects = w.Dynamic.Resource(v2.CiliumNodeResource)
	w.CreateNamespace()
	return w
}

// fast makes sweeps as frequent as tests want them. Keys of agents are too new for as long as a test runs.
var fast = timing{interval: 200 * time.Millisecond, grace: 100 * time.Millisecond, agentGrace: time.Hour}

// start runs an operator of cluster1.
func (w *world) start(args ...string) *operatortest.Operator {
	w.T.Helper()
	return w.startAt(w.etcd.Endpoints()[0], append([]string{"--cluster-name=cluster1", "--cluster-id=1"}, args...)...)
}

func (w *world) startAt(endpoint string, args ...string) *operatortest.Operator {
	w.T.Helper()
	return w.startWith(fast, endpoint, args...)
}

func (w *world) startWith(when timing, endpoint string, args ...string) *operatortest.Operator {
	w.T.Helper()
	return operatortest.Start(w.T, cell.Set(kvstore.Cell, module(when)), w.Kubeconfig(), append([]string{
		"--kvstore=etcd", "--kvstore-opt=etcd.qps=1000,etcd.address=" + endpoint, "--cilium-pod-namespace=" + w.Namespace,
		"--cilium-release=1.18", // else it only deletes keys
	}, args...)...)
}

// full is the name of a node in the cluster, which other tests use, too.
func (w *world) full(name string) string { return name + "." + w.Namespace }

// key is the key of a node of cluster1.
func (w *world) key(name string) string { return "cilium/state/nodes/v1/cluster1/" + w.full(name) }

// create creates a CiliumNode; rest is what follows its name in metadata, and its spec.
func (w *world) create(name, rest string) {
	w.T.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(fmt.Sprintf(`{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"name":%q%s`, w.full(name), rest))); err != nil {
		w.T.Fatal(err)
	}
	if _, err := w.objects.Create(w.T.Context(), u, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

const noSpec = `},"spec":{}}`

// change sets a field of a CiliumNode.
func (w *world) change(name string, value any, fields ...string) {
	w.T.Helper()
	u, err := w.objects.Get(w.T.Context(), w.full(name), metav1.GetOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	if err := unstructured.SetNestedField(u.Object, value, fields...); err != nil {
		w.T.Fatal(err)
	}
	if _, err := w.objects.Update(w.T.Context(), u, metav1.UpdateOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.T.Helper()
	if err := w.objects.Delete(w.T.Context(), w.full(name), metav1.DeleteOptions{}); err != nil {
		w.T.Fatal(err)
	}
}

// agent creates the pod of an agent on a node.
func (w *world) agent(name string) { w.agentOf(name, "i") }

// agentOf creates the pod of an agent with an image.
func (w *world) agentOf(name, image string) {
	w.T.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + name, Labels: map[string]string{"k8s-app": "cilium"}}}
	p.Spec = corev1.PodSpec{NodeName: w.full(name), Containers: []corev1.Container{{Name: "cilium-agent", Image: image}}}
	operatortest.Eventually(w.T, "the pod is created", func() bool { // when the service account exists
		_, err := w.Core.CoreV1().Pods(w.Namespace).Create(w.T.Context(), p, metav1.CreateOptions{})
		return err == nil
	})
}

func (w *world) removeAgent(name string) {
	w.T.Helper()
	if err := w.Core.CoreV1().Pods(w.Namespace).Delete(w.T.Context(), "agent-"+name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		w.T.Fatal(err)
	}
}

// valueOf is the value of a node that has nothing.
func (w *world) valueOf(cluster, name, source string) string {
	return fmt.Sprintf(`{"Name":%q,"Cluster":%q,"IPAddresses":null,`+
		`"IPv4AllocCIDR":null,"IPv4SecondaryAllocCIDRs":null,"IPv6AllocCIDR":null,"IPv6SecondaryAllocCIDRs":null,`+
		`"IPv4HealthIP":"","IPv6HealthIP":"","IPv4IngressIP":"","IPv6IngressIP":"",`+
		`"ClusterID":1,"Source":%q,"EncryptionKey":0,"Labels":null,"Annotations":null,`+
		`"NodeIdentity":0,"WireguardPubKey":"","BootID":""}`, w.full(name), cluster, source)
}

// put puts a key of cluster1 as operators do, or as agents do, on a lease.
func (w *world) put(name, source string, lease clientv3.LeaseID) {
	w.T.Helper()
	w.etcd.Put(w.key(name), w.valueOf("cluster1", name, source), lease)
}

// holds waits until the key of a node has a value, without a lease.
func (w *world) holds(name, value string) {
	w.T.Helper()
	var last string
	defer func() {
		if w.T.Failed() {
			w.T.Log("it has ", last)
		}
	}()
	operatortest.Eventually(w.T, "the key of "+name+" is written", func() bool {
		kv := w.etcd.Get(w.key(name))
		if kv == nil {
			return false
		}
		last = string(kv.Value)
		return last == value && kv.Lease == 0
	})
}

func (w *world) gone(names ...string) {
	w.T.Helper()
	for _, name := range names {
		operatortest.Eventually(w.T, "the key of "+name+" is deleted", func() bool { return w.etcd.Get(w.key(name)) == nil })
	}
}

// stay checks that keys exist.
func (w *world) stay(names ...string) {
	w.T.Helper()
	for _, name := range names {
		if w.etcd.Get(w.key(name)) == nil {
			w.T.Errorf("the key of %s was deleted", name)
		}
	}
}

// sweeps waits until so many more sweeps have ended: what they would delete is deleted.
func (w *world) sweeps(o *operatortest.Operator, n float64) {
	w.T.Helper()
	runs := func() float64 { return o.Metric("sweep_runs_total", "nodesync", "success") }
	before := runs()
	operatortest.Eventually(w.T, "there are sweeps", func() bool { return runs() >= before+n })
}

// writes are those of the duty in the book of an operator.
func writes(o *operatortest.Operator) (of []explain.Write) {
	for _, w := range o.Book.Writes(0) {
		if w.Module == "nodesync" {
			of = append(of, w)
		}
	}
	return of
}
