// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/operatortest"
)

// NSYN-1 and NSYN-4; NSYN-E1 and NSYN-E2: raw bytes in a real etcd, from objects of a real API server.
func TestKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("node-a", ","+nodeA)
	w.create("node-b", noSpec)
	nodeA := strings.Replace(nodeAValue, `"node-a"`, fmt.Sprintf("%q", w.full("node-a")), 1)
	nodeB := w.valueOf("cluster1", "node-b", "custom-resource")
	o := w.start()
	w.holds("node-a", nodeA)
	w.holds("node-b", nodeB)
	w.change("node-a", "b-2", "spec", "bootid")
	w.holds("node-a", strings.Replace(nodeA, "b-1", "b-2", 1))
	for _, wr := range writes(o) { // those about its own nodes: tests at the same time have others
		if strings.HasSuffix(wr.Name, w.Namespace) && (wr.Cause.Rule != "nodesync write" || wr.Verb != "txn") {
			t.Errorf("the book has %s", wr)
		}
	}
	w.remove("node-b")
	w.gone("node-b")
	w.stay("node-a")
	operatortest.Eventually(t, "the keys are counted", func() bool {
		return o.Metric("kvstore_nodes_keys", "operator") >= 1 && o.Metric("kvstore_nodes_written_total") >= 3 &&
			o.Metric("kvstore_initial_sync_completed", "write", "nodes/v1", "cluster1") == 1 && o.Metric("kvstore_sync_queue_size", "nodes/v1", "cluster1") == 0
	})
	operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("") == "" })
	w.CheckHealthy(o)
}

// NSYN-2; NSYN-E5: an operator that starts on what it, or the original, has written makes no transaction.
func TestRestartWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 20 {
		name := fmt.Sprint("n", i)
		w.create(name, noSpec)
		if i%2 == 0 { // as the original writes it
			w.put(name, "custom-resource", 0)
		}
	}
	first := w.start()
	for i := range 20 {
		name := fmt.Sprint("n", i)
		w.holds(name, w.valueOf("cluster1", name, "custom-resource"))
		if kv := w.etcd.Get(w.key(name)); kv.Version != 1 {
			t.Errorf("%s was written %d times", name, kv.Version)
		}
	}
	mine := 0
	for _, wr := range writes(first) {
		for i := range 20 {
			if wr.Name != "cluster1/"+w.full(fmt.Sprint("n", i)) {
				continue
			}
			if mine++; i%2 == 0 {
				t.Errorf("a key of the original was written: %s", wr)
			}
		}
	}
	if mine != 10 {
		t.Errorf("the book has %d writes of 10 keys", mine)
	}
	first.Stop()

	again := w.start()
	w.sweeps(again, 2)
	w.create("last", noSpec)
	w.holds("last", w.valueOf("cluster1", "last", "custom-resource"))
	for _, wr := range writes(again) {
		if strings.HasSuffix(wr.Name, w.Namespace) && wr.Name != "cluster1/"+w.full("last") {
			t.Errorf("it wrote %s", wr)
		}
	}
}

// Number 23 of the contract's kvstore.md; NSYN-3; NSYN-E3: the key of an agent keeps its lease and its value, until the lease ends.
func TestAgentsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lease := w.etcd.Grant(time.Hour)
	w.create("held", noSpec)
	w.create("other", noSpec)
	w.put("held", "local", lease)
	revision := w.etcd.Get(w.key("held")).ModRevision
	w.start()
	w.holds("other", w.valueOf("cluster1", "other", "custom-resource"))
	w.change("held", "b-2", "spec", "bootid")
	w.change("other", "b-2", "spec", "bootid")
	w.holds("other", strings.Replace(w.valueOf("cluster1", "other", "custom-resource"), `"BootID":""`, `"BootID":"b-2"`, 1))
	if kv := w.etcd.Get(w.key("held")); kv.ModRevision != revision || kv.Lease != int64(lease) {
		t.Errorf("the key of an agent was written: %v", kv)
	}
	if _, err := w.etcd.Client.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(w.valueOf("cluster1", "held", "custom-resource"), `"BootID":""`, `"BootID":"b-2"`, 1)
	w.holds("held", want)

	lease = w.etcd.Grant(time.Hour) // the agent is back
	w.put("held", "local", lease)
	w.change("other", "b-3", "spec", "bootid")
	w.holds("other", strings.Replace(w.valueOf("cluster1", "other", "custom-resource"), `"BootID":""`, `"BootID":"b-3"`, 1))
	if kv := w.etcd.Get(w.key("held")); kv.Lease != int64(lease) || kv.Version != 2 {
		t.Errorf("the key of an agent was written: %v", kv)
	}
}

// Numbers 23 of the contract's nodes.md and 25 of its service-sync.md; NSYN-17: keys of nodes whose agents are of 1.19 and later are theirs alone, also once
// their lease has ended. Without an agent the release of the configuration counts.
func TestKeysOfNewerAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lease := w.etcd.Grant(time.Hour)
	for _, name := range []string{"bare", "held", "new", "old", "back"} {
		w.create(name, noSpec)
	}
	w.put("held", "local", lease)
	w.agentOf("new", "example.com/cilium:v1.20.0")
	w.agentOf("held", "example.com/cilium:v1.19.2")
	w.agentOf("back", "example.com/cilium:v1.19.2")
	w.agentOf("old", "example.com/cilium:v1.18.5")
	o := w.start("--cilium-release=")
	w.holds("old", w.valueOf("cluster1", "old", "custom-resource"))
	if _, err := w.etcd.Client.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	w.removeAgent("held")
	w.removeAgent("back")
	w.agentOf("back", "example.com/cilium:v1.18.5") // a downgrade
	w.holds("back", w.valueOf("cluster1", "back", "custom-resource"))
	w.change("new", "b-2", "spec", "bootid")
	w.sweeps(o, 2)
	for _, name := range []string{"bare", "held", "new"} {
		if kv := w.etcd.Get(w.key(name)); kv != nil {
			t.Errorf("the operator has written the key of %s: %s", name, kv.Value)
		}
	}
	for _, wr := range writes(o) {
		if strings.HasSuffix(wr.Name, w.Namespace) && wr.Name != "cluster1/"+w.full("old") && wr.Name != "cluster1/"+w.full("back") {
			t.Errorf("it wrote %s", wr)
		}
	}
	if kv := w.etcd.Get(w.key("old")); kv == nil {
		t.Error("the key of an older agent's node is gone")
	}
}

// NSYN-2: what another writer did to a key without a lease is undone.
func TestOthersWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("a", noSpec)
	w.create("b", noSpec)
	w.start()
	for _, name := range []string{"a", "b"} {
		w.holds(name, w.valueOf("cluster1", name, "custom-resource"))
	}
	w.etcd.Delete(w.key("a"))
	w.etcd.Put(w.key("b"), "{", 0)
	for _, name := range []string{"a", "b"} {
		w.holds(name, w.valueOf("cluster1", name, "custom-resource"))
	}
}

// Number 24 of the contract's nodes.md; NSYN-10 and NSYN-13; NSYN-E4: two operators of two clusters in one etcd. Stale keys of the own cluster are deleted, but for
// those that say something else, and those of nodes with an agent.
func TestStaleKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("node-a", noSpec)
	w.agent("with-agent")
	w.put("node-old", "custom-resource", 0)
	w.put("with-agent", "custom-resource", 0)
	w.put("leased", "local", w.etcd.Grant(time.Hour))
	w.etcd.Put(w.key("garbage"), "{", 0)
	w.etcd.Put(w.key("misnamed"), w.valueOf("cluster1", "node-a", "local"), 0)
	w.etcd.Put(w.key("misplaced"), w.valueOf("cluster10", "misplaced", "local"), 0)
	w.etcd.Put(w.key("slash")+"/x", "v", 0)
	x := "cilium/state/nodes/v1/cluster10/" + w.full("node-x")
	old := "cilium/state/nodes/v1/cluster10/" + w.full("node-old")
	w.etcd.Put(x, w.valueOf("cluster10", "node-x", "local"), 0)
	w.agent("node-x")
	w.etcd.Put(old, w.valueOf("cluster10", "node-old", "local"), 0)
	others := []string{"cilium/state/nodes/v1/cluster1", "cilium/state/nodes/v1/cluster", "cilium/state/nodes/v1x"}
	for _, key := range others {
		w.etcd.Put(key, "v", 0)
	}
	o := w.start()
	w.gone("node-old")
	if w.etcd.Get(old) == nil {
		t.Error("a key of another cluster was deleted")
	}
	w.startAt(w.etcd.Endpoints()[0], "--cluster-name=cluster10", "--cluster-id=1")
	operatortest.Eventually(t, "the other operator deletes its own", func() bool { return w.etcd.Get(old) == nil })
	w.sweeps(o, 1)
	w.stay("node-a", "with-agent", "leased", "garbage", "misnamed", "misplaced")
	for _, key := range append(others, x, w.key("slash")+"/x") {
		if w.etcd.Get(key) == nil {
			t.Errorf("%s was deleted", key)
		}
	}
	if n := o.Log().Count(`"level":"warning"`, "cannot be decoded", w.key("garbage")); n != 1 {
		t.Errorf("%d warnings", n)
	}
	operatortest.Eventually(t, "three keys are counted as unreadable", func() bool { return o.Metric("kvstore_nodes_keys", "unreadable") == 3 })
	w.removeAgent("with-agent")
	w.gone("with-agent")
	w.sweeps(o, 2)
	w.stay("leased")
	o.Stop()
	w.startWith(timing{interval: fast.interval, grace: fast.grace, agentGrace: time.Second}, w.etcd.Endpoints()[0], "--cluster-name=cluster1", "--cluster-id=1")
	w.gone("leased")
}

// Number 25 of the contract's nodes.md; NSYN-10: a CiliumNode is deleted while its agent runs. Its key goes after that. The time of that, by
// the intervals of the duty, is within two minutes.
func TestCiliumNodeGoesBeforeItsAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("stays", noSpec)
	w.create("n1", noSpec)
	w.agent("n1")
	o := w.start()
	w.holds("n1", w.valueOf("cluster1", "n1", "custom-resource"))
	w.remove("n1")
	w.sweeps(o, 2)
	w.stay("n1")
	w.removeAgent("n1")
	w.gone("n1")
	w.stay("stays")
}

// NSYN-11: a CiliumNode that the watch has not delivered yet.
func TestCiliumNodeNotSeenYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("first", noSpec)
	o := w.start()
	w.holds("first", w.valueOf("cluster1", "first", "custom-resource"))
	w.Proxy.HoldWatch(t, "ciliumnodes", 0)
	w.create("late", noSpec)
	w.put("late", "custom-resource", 0)
	operatortest.Eventually(t, "it is spared", func() bool { return o.Metric("sweep_objects_total", "nodesync", "spared") >= 1 })
	w.stay("late")
}

// NSYN-14: a sweep that would delete most keys deletes none.
func TestLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("one", noSpec)
	var names []string
	for i := range 200 { // many more than there are CiliumNodes of other tests, whose keys count, too
		names = append(names, fmt.Sprint("n", i))
		w.put(names[i], "custom-resource", 0)
	}
	o := w.start()
	operatortest.Eventually(t, "it is reported", func() bool { return strings.Contains(o.Degraded("nodesync"), "look like garbage") })
	w.stay(names...)
	o.Stop()
	w.start("--sweep-max-share=1")
	w.gone(names...)
	w.holds("one", w.valueOf("cluster1", "one", "custom-resource"))
}

// NSYN-9: a CiliumNode that agents could not read has its key left as it is, and others are written.
func TestBadCiliumNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("bad", noSpec)
	w.create("good", noSpec)
	o := w.start()
	w.holds("bad", w.valueOf("cluster1", "bad", "custom-resource"))
	w.change("bad", int64(256), "spec", "encryption", "key")
	operatortest.Eventually(t, "it is reported", func() bool {
		return strings.Contains(o.Degraded("nodesync"), w.full("bad")) && strings.Contains(o.Degraded("nodesync"), "spec.encryption.key is 256")
	})
	w.change("good", "b-2", "spec", "bootid")
	w.holds("good", strings.Replace(w.valueOf("cluster1", "good", "custom-resource"), `"BootID":""`, `"BootID":"b-2"`, 1))
	w.holds("bad", w.valueOf("cluster1", "bad", "custom-resource"))
	w.change("bad", int64(7), "spec", "encryption", "key")
	w.holds("bad", strings.Replace(w.valueOf("cluster1", "bad", "custom-resource"), `"EncryptionKey":0`, `"EncryptionKey":7`, 1))
	operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("nodesync") == "" })
}

// NSYN-1: an etcd that is unreachable, at the start and later, keeps nothing from starting, and what changed meanwhile is
// written.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	door := w.etcd.Proxy(t, "etcd-0")
	door.Refuse(t)
	w.create("a", noSpec)
	w.create("b", noSpec)
	o := w.startAt(w.etcd.ProxyEndpoints()[0], "--cluster-name=cluster1", "--cluster-id=1")
	operatortest.Eventually(t, "etcd is known to be unreachable", func() bool { return len(o.Degraded("kvstore")) > 0 })
	door.Heal(t)
	w.holds("a", w.valueOf("cluster1", "a", "custom-resource"))
	door.Refuse(t)
	door.Cut(t)
	w.change("a", "b-2", "spec", "bootid")
	w.remove("b")
	door.Heal(t)
	w.holds("a", strings.Replace(w.valueOf("cluster1", "a", "custom-resource"), `"BootID":""`, `"BootID":"b-2"`, 1))
	w.gone("b")
}

// NSYN-15; NSYN-E6: no CiliumNode at all is not believed. It is not parallel: there must be none of other tests.
func TestNoCiliumNode(t *testing.T) {
	w := newWorld(t)
	w.Clear(ciliumNodes.Resource())
	for _, name := range []string{"a", "b"} {
		w.put(name, "custom-resource", 0)
	}
	before, err := w.etcd.Client.Get(t.Context(), "cilium/state/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	o := w.start()
	w.sweeps(o, 2)
	w.stay("a", "b")
	if n := o.Log().Count(`"level":"warning"`, "no CiliumNode exists"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	after, err := w.etcd.Client.Get(t.Context(), "cilium/state/", clientv3.WithPrefix())
	if err != nil || fmt.Sprint(before.Kvs) != fmt.Sprint(after.Kvs) || len(writes(o)) > 0 {
		t.Errorf("it wrote %v, %v", writes(o), err)
	}
	w.create("a", noSpec)
	operatortest.Eventually(t, "the other is deleted", func() bool { return w.etcd.Get(w.key("b")) == nil })
	w.stay("a")
}

// NSYN-16; K3 of the contract's tenants.md: a node that is too large for its key is written without annotations, or not at all, which is named
// and not tried again; the keys of others are written.
func TestServerNodesLargerThanAKey(t *testing.T) {
	w := newWorld(t)
	markup := strings.Repeat("<", 255<<10)
	w.create("large", fmt.Sprintf(`,"annotations":{"x":%q}%s`, markup, noSpec))
	w.create("hopeless", fmt.Sprintf(`,"annotations":{%q:%q}%s`, publicKey, markup, noSpec))
	o := w.start()
	operatortest.Eventually(t, "both are named", func() bool {
		text := o.Degraded("nodesync")
		return strings.Contains(text, w.full("large")+" (without annotations)") && strings.Contains(text, w.full("hopeless")+" (not at all")
	})
	w.create("other", noSpec)
	operatortest.Eventually(t, "the keys are written", func() bool {
		return w.etcd.Get(w.key("large")) != nil && w.etcd.Get(w.key("other")) != nil && o.Metric("kvstore_initial_sync_completed", "write", "nodes/v1", "cluster1") == 1
	})
	if w.etcd.Get(w.key("hopeless")) != nil || strings.Contains(string(w.etcd.Get(w.key("large")).Value), "u003c") {
		t.Error("the keys are not as they are to be")
	}
	operatortest.Eventually(t, "the nodes have Events", func() bool {
		events, err := w.Core.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=NodeTooLarge"})
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]bool{}
		for _, e := range events.Items {
			of[e.InvolvedObject.Name] = true
		}
		return of[w.full("large")] && of[w.full("hopeless")]
	})
	w.change("hopeless", "abc=", "metadata", "annotations", publicKey)
	w.remove("large")
	operatortest.Eventually(t, "it is over", func() bool { return w.etcd.Get(w.key("hopeless")) != nil && o.Degraded("nodesync") == "" })
	if n := o.MetricSum("kvstore_sync_errors_total"); n != 1 {
		t.Errorf("%v attempts of a key that cannot be written", n)
	}
}

// NSYN-18; number 9.1 of the contract's tenants.md: a key that another writer changes after each write is written slower and slower, which
// health says. Another value of it, and keys of other nodes, do not wait.
func TestContention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("fought", noSpec)
	o := w.start()
	ours := w.valueOf("cluster1", "fought", "custom-resource")
	w.holds("fought", ours)
	writes := 0
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // the other writer looks each 5 ms
		if string(w.etcd.Get(w.key("fought")).Value) == ours {
			writes++
			w.put("fought", "theirs", 0)
		}
	}
	if writes < 5 || writes > 8 {
		t.Errorf("the key was written %d times in 4 s, want the first five and then one after 1 s and one after 2 s more", writes)
	}
	operatortest.Eventually(t, "health names the key", func() bool { return strings.Contains(fmt.Sprint(o.Degraded("nodesync")), w.key("fought")) })
	began := time.Now()
	w.create("other", noSpec)
	w.holds("other", w.valueOf("cluster1", "other", "custom-resource"))
	w.change("fought", "b-2", "spec", "bootid")
	w.holds("fought", strings.Replace(ours, `"BootID":""`, `"BootID":"b-2"`, 1))
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("they are written after %s", d)
	}
}
