// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agents

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(below...), celltest.Args("--k8s-api-server=http://127.0.0.1:1"), celltest.OffArgs("--enable-k8s=false"))
}

func TestReleases(t *testing.T) {
	celltest.Check(t, Releases, celltest.With(append(below, release.Cell, Cell)...), celltest.Args("--k8s-api-server=http://127.0.0.1:1"), celltest.OffArgs("--enable-k8s=false"))
}

var below = []cell.Cell{
	cluster.Cell(cluster.DefaultConfig), cell.Module("ipam", "Allocates", cell.Annotate(cluster.Allocator{Mode: "cluster-pool"})), k8s.Cell, stream.Cell,
}

// The fields are those of the API server.
func TestKinds(t *testing.T) {
	if err := Pods.Check(); err != nil {
		t.Error(err)
	}
	if err := Nodes.Check(); err != nil {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	valid := Config{CiliumPodLabels: "k8s-app=cilium", AgentNotReadyTaintKey: "node.cilium.io/agent-not-ready"}
	for name, c := range map[string]struct {
		change func(*Config)
		flag   string // that the error is about; "" for none
	}{
		"defaults":           {func(*Config) {}, ""},
		"a set":              {func(c *Config) { c.CiliumPodLabels = "app in (a, b),!c" }, ""},
		"no selector":        {func(c *Config) { c.CiliumPodLabels = "a in (b" }, "cilium-pod-labels"},
		"an empty selector":  {func(c *Config) { c.CiliumPodLabels = "" }, "cilium-pod-labels"},
		"a namespace":        {func(c *Config) { c.CiliumPodNamespace = "kube-system" }, ""},
		"a path":             {func(c *Config) { c.CiliumPodNamespace = "../x" }, "cilium-pod-namespace"},
		"a bare key":         {func(c *Config) { c.AgentNotReadyTaintKey = "wait" }, ""},
		"no key":             {func(c *Config) { c.AgentNotReadyTaintKey = "" }, "agent-not-ready-taint-key"},
		"a key with a space": {func(c *Config) { c.AgentNotReadyTaintKey = "a b" }, "agent-not-ready-taint-key"},
	} {
		config := valid
		c.change(&config)
		err := config.Validate()
		if (err == nil) != (c.flag == "") || err != nil && !strings.Contains(err.Error(), c.flag) {
			t.Errorf("%s: %v, want an error about %q", name, err, c.flag)
		}
	}
}

// NTNT-2 and NTNT-8, by the pods of a server. Pods of other namespaces and labels are no agents.
func TestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := streamtest.NewServer()
		server.Serve(Pods.Resource(), "Pod", false)
		pod := func(name, node string, ready corev1.ConditionStatus, edits ...func(*corev1.Pod)) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system", Labels: map[string]string{"k8s-app": "cilium"}}}
			p.Spec.NodeName = node
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
			for _, edit := range edits {
				edit(p)
			}
			server.Put(Pods.Resource(), p)
		}
		terminating := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
		pod("a", "ready", "True")
		pod("b", "one-of-two", "False")
		pod("c", "one-of-two", "True")
		pod("d", "not-ready", "Unknown")
		pod("e", "terminating", "True", terminating)
		pod("f", "", "True")
		pod("g", "other-namespace", "True", func(p *corev1.Pod) { p.Namespace = "default" })
		pod("h", "other-labels", "True", func(p *corev1.Pod) { p.Labels = map[string]string{"k8s-app": "other"} })

		open := func(kind stream.Kind[Pod]) *stream.Store[Pod] {
			pods, err := stream.New(stream.NewSource(server.Connect()), kind)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pods.Close)
			store, err := pods.Store(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return store
		}
		store := open(Selected(Pods, Selection{Config: Config{CiliumPodLabels: "k8s-app=cilium"}, Shared: cluster.Config{K8sNamespace: "kube-system"}}))
		check := func(want map[string]State) {
			t.Helper()
			synctest.Wait()
			for node, state := range want {
				if got := StateOn(store, node); got != state {
					t.Errorf("the agent of %s is %d, want %d", node, got, state)
				}
			}
		}
		check(map[string]State{
			"ready": Ready, "one-of-two": Ready, "not-ready": NotReady, "terminating": NotReady,
			"none": Absent, "other-namespace": Absent, "other-labels": Absent,
		})
		store = open(Pods) // the server of the test does not know the labels of what is damaged
		damaged, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "kube-system", ResourceVersion: (server.Revision() + 1).String()}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		server.PutRaw(Pods.Resource(), slim.Key{Namespace: "kube-system", Name: "c"}, damaged[:len(damaged)-1])
		check(map[string]State{"ready": Ready, "one-of-two": Unknown, "not-ready": Unknown, "none": Unknown})
		pod("c", "one-of-two", "False")
		check(map[string]State{"ready": Ready, "one-of-two": NotReady, "not-ready": NotReady, "none": Absent})
		if keys := slices.Collect(On(store, "one-of-two")); len(keys) != 2 {
			t.Errorf("the pods are %v", keys)
		}
	})
}

func releaseOf(t *testing.T, text string) release.Release {
	t.Helper()
	r, _, err := release.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func agentPod(name, node, image, chart string) *Pod {
	p := &Pod{}
	p.Name, p.Namespace, p.Spec.NodeName = name, slim.MakeString("kube-system"), slim.MakeString(node)
	p.Spec.Images = slim.MakeImages(slim.ContainerImage{Name: "other", Image: "o:v1.17.0"}, slim.ContainerImage{Name: "cilium-agent", Image: image})
	if chart != "" {
		p.Labels = slim.MakeLabels(map[string]string{"helm.sh/chart": chart})
	}
	return p
}

// ID-41.
func TestReleaseOfAnAgent(t *testing.T) {
	for _, c := range []struct{ image, chart, want string }{
		{"registry.test/cilium/cilium:v1.19.4", "", "1.19"},
		{"registry.test/cilium/cilium:v1.20.1@sha256:0123", "cilium-1.20.1", "1.20"},
		{"registry.test:5000/mirror/agent@sha256:0123", "cilium-1.20.0", "1.20"},
		{"registry.test:5000/mirror/agent", "", ""},
		{"agent:latest", "", ""},
		{"agent:latest", "cilium-1.20.0-pre.1", "1.20"},
		{"agent:2024.3", "cilium-1.18.2", "1.18"}, // a tag of the registry's own
		{"agent:v1.21.0", "cilium-1.21.0", "1.20"},
		{"agent:v1.18.3", "cilium-1.20.1", "1.18"}, // what runs is the image
		{"", "other-1.20.1", ""},
	} {
		r, tells := agentPod("a", "n", c.image, c.chart).Release()
		if tells != (c.want != "") || tells && r.String() != c.want {
			t.Errorf("%+v: it is %s, told: %t", c, r, tells)
		}
	}
}

// ID-41.
func TestFleet(t *testing.T) {
	old, newest := releaseOf(t, "1.19"), releaseOf(t, "1.20")
	f := NewFleet(release.Configured{Release: old})
	on := func(node string) string {
		is, known := f.On(slim.MakeString(node))
		if known == is.Empty() {
			t.Errorf("%s: known %t, %q", node, known, is)
		}
		return is.String()
	}
	apply := func(kind stream.ChangeKind, p *Pod, want ...string) {
		t.Helper()
		var changed []string
		for _, node := range f.Apply(stream.Change[Pod]{Kind: kind, Key: p.Key(), Object: p}) {
			changed = append(changed, node.String())
		}
		if !slices.Equal(changed, want) {
			t.Errorf("%s: the releases of %q change, want %q", p.Name, changed, want)
		}
	}
	if f.Running() != release.SetOf(old) || on("n1") != "" {
		t.Errorf("without agents %s runs, on n1 %q", f.Running(), on("n1"))
	}
	a, b := agentPod("a", "n1", "i:v1.19.1", ""), agentPod("b", "n1", "i:v1.20.1", "")
	apply(stream.Upsert, a, "n1")
	apply(stream.Upsert, a)
	apply(stream.Upsert, agentPod("unbound", "", "i:v1.18.1", ""))
	apply(stream.Upsert, b, "n1")
	if on("n1") != "1.20, 1.19" || f.Running() != release.SetOf(old, newest) {
		t.Errorf("while one agent takes over, n1 has %q, and %s run", on("n1"), f.Running())
	}
	apply(stream.Delete, a, "n1")
	apply(stream.Delete, a)
	if on("n1") != "1.20" || f.Running() != release.SetOf(newest) {
		t.Errorf("after it, n1 has %q, and %s runs", on("n1"), f.Running())
	}
	apply(stream.Upsert, agentPod("b", "n2", "i:v1.20.1", ""), "n1", "n2")
	apply(stream.Upsert, agentPod("c", "n3", "i:latest", ""), "n3")
	if on("n1") != "" || on("n3") != "1.19" || f.Running() != release.SetOf(old, newest) {
		t.Errorf("n1 has %q, n3 %q, and %s run", on("n1"), on("n3"), f.Running())
	}
	apply(stream.Delete, b, "n2")
	if len(f.nodes) != 1 || len(f.nodeOf) != 1 || len(f.running) != 1 {
		t.Errorf("%d nodes, %d pods and %d releases are left", len(f.nodes), len(f.nodeOf), len(f.running))
	}
	f = NewFleet(release.Configured{Release: old, Forced: true})
	apply(stream.Upsert, b, "n1")
	if on("n1") != "1.19" || f.Running() != release.SetOf(old) {
		t.Errorf("against the option n1 has %q, and %s run", on("n1"), f.Running())
	}
}
