// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// groupsNamed are groups of names, which are in the place of their JSON.
func groupsNamed(names ...string) (all []networkpolicy.Group) {
	for _, name := range names {
		all = append(all, networkpolicy.Group(name))
	}
	return all
}

// numbered are so many names.
func numbered(name string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(name, i))
	}
	return all
}

// DERIV-21, K8S-22: a group is among the work of the namespace that has the fewest groups of those whose policies have it; a reference of
// another one draws it nowhere. While its key is queued nothing of that changes.
func TestLanesOfGroups(t *testing.T) {
	u := newUsers()
	policy := func(namespace, name string, groups ...string) {
		u.set(slim.Key{Namespace: namespace, Name: name}, groupsNamed(groups...), false)
	}
	id := func(name string) string { return networkpolicy.Group(name).ID() }
	check := func(name, want string) {
		t.Helper()
		if come, done := u.lane(id(name)), u.lane(id(name)); come != want || done != want {
			t.Errorf("%s has its turns with %s, and %s when it is done, want %s", name, come, done, want)
		}
	}
	policy("bb", "many", append(numbered("b", 100), "a")...)
	check("a", "bb")
	policy("aa", "web", "a", "other")
	policy("", "wide", "b0", "b1", "b2", "w")
	check("a", "aa")
	check("b0", groupNamespace)
	check("b9", "bb")
	check("w", groupNamespace)
	check("unknown", groupNamespace)

	come := u.lane(id("a"))
	policy("aa", "web")
	policy("cc", "web", "a")
	if done := u.lane(id("a")); come != "aa" || done != "aa" {
		t.Errorf("it comes with %s, and is done with %s", come, done)
	}
	check("a", "cc")

	// One that no policy has any more stays where it was until its CIDR group is gone.
	policy("bb", "many")
	policy("cc", "web")
	check("b9", "bb")
	check("a", "cc")
	u.forget(id("b9"))
	check("b9", groupNamespace)
	policy("dd", "web", "a")
	policy("", "wide")
	policy("dd", "web")
	check("a", "dd")
	for _, name := range append(numbered("b", 100), "a", "other", "w") {
		u.forget(id(name))
	}
	if l := u.lanes; len(l.load)+len(l.former)+len(l.queued) > 0 {
		t.Errorf("%v is left", l)
	}
}

// K7 and number 7.2 of the contract's tenants.md; DERIV-21: of thousands of groups of one namespace, and one of another, the latter is the
// second; also when groups change their namespaces while they wait.
func TestGroupsOfNamespacesHaveTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &controller{users: newUsers()}
		bb, aa := numbered("b", 2560), "a"
		for i, groups := range slices.Collect(slices.Chunk(bb, networkpolicy.MaxGroups)) {
			c.users.set(slim.Key{Namespace: "bb", Name: fmt.Sprint(i)}, groupsNamed(groups...), false)
		}
		c.users.set(slim.Key{Namespace: "aa", Name: "web"}, groupsNamed(aa), false)
		c.users.set(slim.Key{Namespace: "bb", Name: "jealous"}, groupsNamed(aa), false)
		key := func(name string) slim.Key { return groupKey(networkpolicy.Group(name).ID()) }
		var order []slim.Key
		deps := reconcile.Deps{Module: cell.ModuleInfo{ID: "policy.derivative"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("policy.derivative")}
		q := reconcile.NewQueue(deps, "reconcile", func(_ context.Context, key slim.Key) error {
			if len(order) == 0 {
				c.users.set(slim.Key{Namespace: "bb", Name: "0"}, nil, false)
				c.users.set(slim.Key{Namespace: "cc", Name: "web"}, groupsNamed(bb[:300]...), false)
			}
			order = append(order, key)
			return nil
		}, append(c.QueueOptions(), reconcile.Workers(1))...)
		for _, name := range append(slices.Clone(bb), aa) {
			q.Add(key(name))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = q.Run(ctx) }()
		synctest.Wait()
		if len(order) != len(bb)+1 || order[1] != key(aa) {
			t.Errorf("of %d groups the one of the other namespace is number %d", len(order), slices.Index(order, key(aa))+1)
		}
		for _, name := range append(slices.Clone(bb), aa) { // the workers of all namespaces are free again
			q.Add(key(name))
		}
		synctest.Wait()
		if n := len(order); n != 2*(len(bb)+1) {
			t.Errorf("%d groups were reconciled", n)
		}
		cancel()
		<-done
		if n := len(c.users.lanes.queued); n > 0 {
			t.Errorf("%d groups still wait", n)
		}
	})
}

// K7 and number 7.2 of the contract's tenants.md; DERIV-21: groups of one namespace that are long in the cloud leave a worker to the group
// of another.
func TestGroupsOfOneNamespaceDoNotHoldUpThoseOfAnother(t *testing.T) {
	w := newWorld(t)
	w.agents("1.20.1")
	w.create(w.policies, "slow", `"spec":`+groupRule(numbered("slow-", 5)...))
	w.cloud.set("quick", "10.1.1.1")
	w.startIn(w.Kubeconfig())
	operatortest.Eventually(t, "the first of them are asked for", func() bool { return w.cloud.begun() >= 3 })
	other := w.Namespace + "-aa"
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}
	if _, err := w.Core.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.create(w.Dynamic.Resource(v2.CiliumNetworkPolicyResource).Namespace(other), "quick", `"spec":`+groupRule("quick"))
	w.external("quick", "10.1.1.1/32")
	if n := w.cloud.begun(); n > 3 { // they end after a minute, and then it is the turn of others anyway
		t.Errorf("%d of the slow look-ups had begun before", n)
	}
	close(w.cloud.slow)
}
