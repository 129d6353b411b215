// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

// MESH-18: of two clusters with one ID the one keeps it that had it in an earlier term, whichever was read first.
func TestIDs(t *testing.T) {
	for name, test := range map[string]struct {
		claims    string // before the record is read
		kept      map[string]uint32
		displaced string
		want      map[string]uint32
	}{
		"nothing was kept":           {"a=2", nil, "", map[string]uint32{"a": 2}},
		"the same":                   {"a=2 b=3", map[string]uint32{"a": 2, "b": 3}, "", map[string]uint32{"a": 2, "b": 3}},
		"not read yet":               {"", map[string]uint32{"a": 2}, "", map[string]uint32{"a": 2}},
		"another one was read first": {"b=2", map[string]uint32{"a": 2}, "b", map[string]uint32{"a": 2}},
		"it has another ID by now":   {"a=4 b=2", map[string]uint32{"a": 2}, "", map[string]uint32{"a": 4, "b": 2}},
		"no ID":                      {"a=2", map[string]uint32{"b": 0}, "", map[string]uint32{"a": 2}},
	} {
		i := newIDs()
		for claim := range strings.FieldsSeq(test.claims) {
			var of string
			var id uint32
			of, text, _ := strings.Cut(claim, "=")
			if _, err := fmt.Sscan(text, &id); err != nil || i.claim(of, id) != nil {
				t.Fatal(claim, err)
			}
		}
		if got := strings.Join(i.adopt(test.kept), " "); got != test.displaced || !maps.Equal(i.byName(), test.want) {
			t.Errorf("%s: %q has to give way, %v", name, got, i.byName())
		}
	}
	i := newIDs()
	i.adopt(map[string]uint32{"a": 2, "gone": 3})
	if err := i.claim("b", 2); err == nil || !strings.Contains(err.Error(), "its ID 2 is that of cluster a") {
		t.Error(err)
	}
	i.retain(func(name string) bool { return name != "gone" })
	if err := i.claim("b", 3); err != nil || i.has("gone") || !i.has("a") {
		t.Error(err, i.byName())
	}
	if i.release("a"); i.claim("c", 2) != nil {
		t.Error("the ID of a cluster that is forgotten is kept")
	}
}

// idsWorld is a world with an API server, whose operator has a namespace of its own.
type idsWorld struct {
	*world
	env *operatortest.Env
}

func newIDsWorld(t *testing.T) *idsWorld {
	t.Helper()
	w := &idsWorld{newWorld(t), operatortest.NewEnv(t, clustertest.Shared(t))}
	w.env.CreateNamespace()
	return w
}

func (w *idsWorld) startHere(record time.Duration) {
	w.t.Helper()
	w.startWith(w.env.Kubeconfig(), record, "--k8s-namespace="+w.env.Namespace)
}

func (w *idsWorld) awaitRecord(want string) {
	w.t.Helper()
	w.eventually("the Lease has "+want, func() bool {
		l, err := w.env.Core.CoordinationV1().Leases(w.env.Namespace).Get(w.t.Context(), recordName, metav1.GetOptions{})
		return err == nil && l.Annotations[recordAnnotation] == want
	})
}

// MESH-18, MESH-E10; numbers 8.4 of the contract's tenants.md: a cluster that appears with the ID of another one is not believed, though it
// is read first after a restart, and the other one is away.
func TestIDsAreKeptOverRestarts(t *testing.T) {
	w := newIDsWorld(t)
	a, b := newPeer(t, "a", 2).publish(""), newPeer(t, "b", 3).publish("")
	proxy := a.Proxy(t, a.Members(t)[0].Name)
	a.serve("state", web, "10.2.0.1")
	w.file("a", a.ProxyEndpoints()[0])
	w.file("b", b.Endpoints()[0])
	w.startHere(10 * time.Second)
	w.awaitBackends("a", "10.2.0.1")
	w.awaitRecord(`{"a":2,"b":3}`)
	w.Stop()

	proxy.Refuse(t)
	proxy.Cut(t)
	b.id = 2
	b.publish("")
	b.serve("state", web, "10.6.6.6")
	w.startHere(10 * time.Second)
	w.eventually("b is refused", func() bool { return strings.Contains(w.Degraded("clustermesh.b"), "its ID 2 is that of cluster a") })
	proxy.Heal(t)
	w.awaitBackends("a", "10.2.0.1")
	if got := w.backends("b", web); got != "unknown" {
		t.Errorf("b: %s", got)
	}
	w.awaitRecord(`{"a":2,"b":3}`)
	w.remove("a") // by the administrator
	w.awaitBackends("b", "10.6.6.6")
	w.awaitRecord(`{"b":2}`)
	w.Stop()

	before := writesTo(w.env, "leases")
	w.startHere(10 * time.Second)
	w.awaitBackends("b", "10.6.6.6")
	w.eventually("the record was read", func() bool { return w.mesh.isRead() })
	if now := writesTo(w.env, "leases"); now != before {
		t.Errorf("%d writes after a restart", now-before)
	}
}

// writesTo is how many requests have changed the record.
func writesTo(e *operatortest.Env, resource string) (n int) {
	for _, r := range e.Proxy.Requests(e.T, 0) {
		if r.Resource == resource && r.Namespace == e.Namespace && r.Name != "cilium-operator-resource-lock" && r.Mutates() {
			n++
		}
	}
	return n
}

// MESH-18: an API server that does not answer about the record keeps no cluster from being read for long; when it answers, the ID goes to the
// cluster that had it.
func TestIDsThatAreReadLate(t *testing.T) {
	w := newIDsWorld(t)
	a, b := newPeer(t, "a", 2).publish(""), newPeer(t, "b", 2).publish("")
	a.serve("state", web, "10.2.0.1")
	b.serve("state", web, "10.6.6.6")
	w.file("a", a.Endpoints()[0])
	w.startHere(time.Second)
	w.awaitRecord(`{"a":2}`)
	w.Stop()
	w.remove("a")
	w.file("b", b.Endpoints()[0])
	block := w.env.Proxy.Answer(t, http.StatusServiceUnavailable, clustertest.Match{Resources: []string{"leases"}, Names: []string{recordName}})
	w.startHere(100 * time.Millisecond)
	w.awaitBackends("b", "10.6.6.6")
	w.file("a", a.Endpoints()[0])
	w.eventually("a is refused", func() bool { return strings.Contains(w.Degraded("clustermesh.a"), "its ID 2 is that of cluster b") })
	block.Remove(t)
	w.awaitBackends("a", "10.2.0.1")
	w.eventually("b is refused", func() bool { return strings.Contains(w.Degraded("clustermesh.b"), "its ID 2 is that of cluster a") })
}

// MESH-19; numbers 8.1 of the contract's tenants.md: of a cluster with too many keys some are kept, and of others nothing is decided. What goes
// makes space.
func TestKeysAreBounded(t *testing.T) {
	w, a := newWorld(t), newPeer(t, "a", 2).publish("")
	var keys []string
	for i := range 10 {
		key := web
		key.Name = fmt.Sprintf("web-%d", i)
		a.serve("state", key, "10.2.0.1")
		keys = append(keys, key.Name)
	}
	w.file("a", a.Endpoints()[0])
	w.start("--clustermesh-max-keys=4")
	states := func() (present []string) {
		for _, name := range keys {
			key := web
			key.Name = name
			switch _, state := w.mesh.Services.Get("a", key); state {
			case Present:
				present = append(present, name)
			case Absent:
				t.Errorf("%s is absent", name)
			}
		}
		return present
	}
	w.eventually("health and the metric say so", func() bool {
		return strings.Contains(w.Degraded("clustermesh.a"), "6 values") && w.Metric("clustermesh_left_out_values", "here", "a") == 6
	})
	w.eventually("all that is kept is known", func() bool { return w.status("a").Ready })
	present := states()
	if len(present) != 4 {
		t.Fatalf("present are %v", present)
	}
	for i := range 3 {
		key := web
		key.Name = present[i]
		a.Delete(a.serviceKey("state", key))
		keys = slices.DeleteFunc(keys, func(name string) bool { return name == present[i] })
	}
	w.eventually("others are kept", func() bool { return len(states()) == 4 })
	for _, name := range keys {
		key := web
		key.Name = name
		if _, state := w.mesh.Services.Get("a", key); state == Unknown {
			a.Delete(a.serviceKey("state", key))
		}
	}
	w.eventually("nothing is left out", func() bool {
		_, state := w.mesh.Services.Get("a", web)
		return state == Absent && w.Degraded("clustermesh.a") == "" && w.Metric("clustermesh_left_out_values", "here", "a") == 0
	})
}
