// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/seedtest"
)

func object(namespace, name string) Object {
	return Object{Secret, slim.Key{Namespace: namespace, Name: name}}
}

// SEC-14; number 2.1 and 2.2 of the contract's tenants.md.
func TestNamesOfCopies(t *testing.T) {
	now := time.Unix(1000, 0)
	n := NewNames()
	n.now = func() time.Time { return now }
	bank, other := object("team-prod", "tls"), object("team", "prod-tls")
	n.Exists("copies", "team-prod-tls", bank)
	n.Exists("copies", "a-b", Object{})
	n.MarkKnown()
	if got := n.Of("copies", bank); got != "team-prod-tls" {
		t.Errorf("the copy that exists is %s", got)
	}
	hashed := n.Of("copies", other)
	if hashed == "team-prod-tls" || !strings.HasPrefix(hashed, "team-prod-tls-") || n.Of("copies", other) != hashed || n.Plain("copies", other) || !n.Plain("copies", bank) {
		t.Errorf("the copy of another object is %s", hashed)
	}
	if got := n.Of("elsewhere", other); got != "team-prod-tls" {
		t.Errorf("in another namespace it is %s", got)
	}
	if got := n.Of("copies", object("a", "b")); got == "a-b" {
		t.Error("the name of a Secret that is no copy is given")
	}
	n.Gone("copies", "a-b")
	if n.Plain("copies", object("a", "b")) != true {
		t.Error("a name that is free again is not given")
	}
	if got := n.Of("copies", Object{ConfigMap, slim.Key{Namespace: "x", Name: "y"}}); got != "x-cfgmap-y" {
		t.Errorf("the copy of a ConfigMap is %s", got)
	}
	if got := n.Of("copies", object("x", "cfgmap-y")); got == "x-cfgmap-y" {
		t.Error("a Secret has the name of the copy of a ConfigMap")
	}
	n.Release(bank)
	if n.Plain("copies", other) {
		t.Error("a name is given while what names it may not have been written anew")
	}
	now = now.Add(reuse)
	if !n.Plain("copies", other) || n.Of("copies", bank) == "team-prod-tls" {
		t.Error("a name that was released is not given")
	}
	long := object(strings.Repeat("n", 63), strings.Repeat("s", 253))
	if got := n.Of("copies", long); len(got) != maxName || len(validation.NameIsDNSSubdomain(got, false)) > 0 {
		t.Errorf("a long one is %s", got)
	}
}

// SEC-18; number 2.1 of the contract's tenants.md: a name that a configuration has which stays as it is goes to no other object, whether or not a copy has
// it, but for those of the namespace of the configuration.
func TestPinnedNames(t *testing.T) {
	now := time.Unix(1000, 0)
	n := NewNames()
	n.now = func() time.Time { return now }
	bank, other := object("team-prod", "tls"), object("team", "prod-tls")
	n.Exists("copies", "team-prod-tls", bank)
	n.Pin("copies", "team-prod-tls", "team-prod")
	n.MarkKnown()
	n.Release(bank)
	now = now.Add(2 * reuse)
	if n.Plain("copies", other) || n.Of("copies", other) == "team-prod-tls" {
		t.Error("an object has the name that the configuration of another one has")
	}
	if !n.Plain("copies", bank) || n.Of("copies", bank) != "team-prod-tls" {
		t.Error("what is of the namespace of the configuration has not the name")
	}
	if got := n.Of("elsewhere", other); got != "team-prod-tls" {
		t.Errorf("in another namespace it is %s", got)
	}

	n.Pin("copies", "a-b-c", "a") // without a copy, and in two configurations
	n.Pin("copies", "a-b-c", "a")
	n.Unpin("copies", "a-b-c", "a")
	if n.Plain("copies", object("a-b", "c")) {
		t.Error("a configuration of another namespace would have the key")
	}
	n.Unpin("copies", "a-b-c", "a")
	n.Unpin("copies", "team-prod-tls", "team-prod")
	if !n.Plain("copies", object("a-b", "c")) || len(n.pinned) > 0 {
		t.Errorf("a name that no configuration has is not given: %v", n.pinned)
	}
}

// SEC-14; numbers 2.1 and 2.2 of the contract's tenants.md: while a configuration has a name, its owner keeps it, also if nothing refers to it any more: no
// other object has it by then, and the same one has it again. Without an owner, as after a restart, a shared configuration keeps it from none.
func TestNamesOfConfigurations(t *testing.T) {
	bank, other := object("team-prod", "tls"), object("team", "prod-tls")
	for name, hold := range map[string][2]func(*Names){
		"of a Gateway": {func(n *Names) { n.Pin("copies", "team-prod-tls", "team") }, func(n *Names) { n.Unpin("copies", "team-prod-tls", "team") }},
		"shared":       {func(n *Names) { n.Keep("copies", "team-prod-tls") }, func(n *Names) { n.Unkeep("copies", "team-prod-tls") }},
	} {
		now := time.Unix(1000, 0)
		n := NewNames()
		n.now = func() time.Time { return now }
		n.MarkKnown()
		if n.Of("copies", other) != "team-prod-tls" {
			t.Fatal("the first one has not the plain name")
		}
		hold[0](n)
		n.Release(other)
		now = now.Add(2 * reuse)
		n.Release(object("a", "b"))
		if n.Plain("copies", bank) || n.Of("copies", bank) == "team-prod-tls" {
			t.Errorf("%s: another one has the name that a configuration has", name)
		}
		if n.Of("copies", other) != "team-prod-tls" {
			t.Errorf("%s: the owner has it no more", name)
		}
		n.Release(other)
		hold[1](n)
		now = now.Add(2 * reuse)
		n.Release(object("a", "b"))
		if len(n.freed)+len(n.kept)+len(n.pinned) > 0 || !n.Plain("copies", bank) {
			t.Errorf("%s: a name that no configuration has is not given: %v", name, n.freed)
		}
	}
	n := NewNames()
	n.Keep("copies", "team-prod-tls")
	n.MarkKnown()
	if got := n.Of("copies", other); got != "team-prod-tls" {
		t.Errorf("the next leader gives %s", got)
	}
}

// SEC-14: a configuration that names an object of another namespace which has no copy, as the default certificate of Ingresses before there is one, is given a
// name by the next leader that all later ones give: not the plain one, which may mean another object.
func TestNamesOfObjectsWithoutCopies(t *testing.T) {
	of, name := object("kube-system", "default-tls"), "kube-system-default-tls"
	for i := range 4 {
		n := NewNames()
		n.Pin("copies", name, "team")
		n.MarkKnown()
		got := n.Of("copies", of)
		if got == "kube-system-default-tls" || i > 0 && got != name || isComputed(got) {
			t.Errorf("leader %d gives %s after %s", i, got, name)
		}
		if again := n.Of("copies", of); again != got {
			t.Errorf("and then %s", again)
		}
		name = got
	}
}

// SEC-15; number 2.4 of the contract's tenants.md: where network policies may not name Secrets of other namespaces, no object has a name that agents may
// compute for one, but what a policy may name, and what a configuration has that is left. The next leader gives the same names.
func TestHiddenNames(t *testing.T) {
	served, own, left := object("team-prod", "tls"), object("team", "prod-tls"), object("a", "left")
	newNames := func() *Names {
		n := NamesOf(Config{PolicySecretsOwnNamespaceOnly: true, EnablePolicySecretsSync: true, PolicySecretsNamespace: "c"})
		n.Exists("c", "team-prod-tls", served) // of an operator without the option
		n.Exists("c", "a-left", left)
		n.Pin("c", "a-left", "a")
		return n
	}
	n, next := newNames(), newNames()
	n.MarkKnown()
	name := n.Of("c", served)
	if strings.Contains(name, "-") || len(validation.NameIsDNSSubdomain(name, false)) > 0 || n.Of("c", served) != name || n.Of("c", object("x", "y")) == name {
		t.Errorf("the copy of what is served is %s", name)
	}
	next.Exists("c", name, served)
	next.MarkKnown()
	if again := next.Of("c", served); again != name {
		t.Errorf("the next leader gives %s in place of %s", again, name)
	}
	if got := n.Of("d", served); got != "team-prod-tls" {
		t.Errorf("in another namespace it is %s", got)
	}
	if got := n.Kept("c", left); got != "a-left" {
		t.Errorf("the copy of what a configuration has is %s", got)
	}
	if n.Plain("c", own) || !n.Plain("c", served) || !n.Plain("c", object("b", "own")) {
		t.Error("what a policy may name has not the name that agents compute, or another one's")
	}
	if name := n.Of("c", object("b", "own")); strings.Contains(name, "-") {
		t.Errorf("beside it for others it is %s", name)
	}
	for _, c := range []Config{{PolicySecretsOwnNamespaceOnly: true, PolicySecretsNamespace: "c"}, {EnablePolicySecretsSync: true, PolicySecretsNamespace: "c"}} {
		if got := NamesOf(c).Of("c", served); got != "team-prod-tls" {
			t.Errorf("with %+v it is %s", c, got)
		}
	}
}

// What is released goes once its name may be another's, and what is asked for again meanwhile stays.
func TestReleasedNamesGo(t *testing.T) {
	now := time.Unix(1000, 0)
	n := NewNames()
	n.now = func() time.Time { return now }
	n.MarkKnown()
	const many = 100
	numbered := func(i int) Object { return object("a", fmt.Sprint("s", i)) }
	for i := range many {
		n.Of("copies", numbered(i))
		n.Of("others", numbered(i))
	}
	for i := range many {
		n.Release(numbered(i))
	}
	n.Of("copies", numbered(0))
	now = now.Add(reuse)
	for range many { // each tries a few
		n.Release(object("b", "none"))
	}
	if len(n.owners) != 1 || len(n.names) != 1 || len(n.held) != 1 || len(n.freed) != 0 {
		t.Errorf("of %d objects %d names, %d answers, %d owners and %d releases are left, and one is in use", many, len(n.owners), len(n.names), len(n.held), len(n.freed))
	}
}

// SEC-14; numbers 2.1 and 2.2 of the contract's tenants.md: whichever object comes first, whatever is released meanwhile, and whatever copies and configurations
// exist at the start: no two objects have one name, each keeps its own until it is released, no other object has one that a configuration has but the one which
// this means, and the next leader gives the same to those that have copies.
func TestNamesAreOfOneObject(t *testing.T) {
	r, rounds := rand.New(rand.NewPCG(seedtest.Seed(t), 2)), 500
	if seedtest.Soak() {
		rounds = 50_000
	}
	for range rounds {
		m := &namesModel{t: t, r: r, now: time.Unix(1000, 0), copies: map[string]Object{}}
		for range 3 {
			m.lead()
			for range 60 {
				m.step()
			}
		}
	}
}

// SEC-14: objects that are not copied are served with no Secret but the copy that they had, or one that was made for them by hand, although others are
// copied to the same namespace: number 2.1 of the contract's tenants.md.
func TestNamesOfObjectsThatAreNotCopied(t *testing.T) {
	n := NewNames()
	had, byHand, victim, attacker := object("a", "had"), object("a", "hand"), object("team-prod", "tls"), object("team", "prod-tls")
	n.Exists("c", "a-had-0123456789ab", had)
	n.Exists("c", byHand.CopyName(), Object{})
	n.MarkKnown()
	names, err := n.AwaitIn(t.Context(), "c", false)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // before the victim has its copy, and after
		for of, want := range map[Object]string{had: "a-had-0123456789ab", byHand: "a-hand", attacker: "team-prod-tls-"} {
			if got := names.SecretCopy(envoy.Name(of.Key)); got != want {
				t.Errorf("%s: %q, want %q", of, got, want)
			}
		}
		if got := n.Of("c", victim); got != "team-prod-tls" {
			t.Errorf("the copy of %s is %s", victim, got)
		}
	}
	if n.Has("c", attacker) {
		t.Error("an object that is not copied has a name")
	}
}

// SEC-14: nothing has a name before the copies that exist are known, however long that is, and health says so meanwhile: number 2.2 of the
// contract's tenants.md.
func TestNamesAwaitTheCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, tree := NewNames(), health.NewTree()
		var names envoy.CopyNames
		ctx := health.NewContext(t.Context(), tree.Reporter("ingress"))
		go func() { names, _ = n.AwaitIn(ctx, "c", true) }()
		degraded := func() (all []string) {
			for _, s := range tree.Degraded() {
				all = append(all, s.ID+": "+s.Message)
			}
			return all
		}
		time.Sleep(time.Hour) // of the test's clock
		synctest.Wait()
		if all := degraded(); names != nil || len(all) != 1 || !strings.HasPrefix(all[0], "ingress.waits-for-copies: nothing is translated before the copies of secrets in namespace c are known") {
			t.Errorf("after an hour: %v, %q", names, all)
		}
		n.Exists("c", "team-prod-tls", object("team", "prod-tls"))
		n.MarkKnown()
		synctest.Wait()
		if all := degraded(); names == nil || len(all) > 0 {
			t.Fatalf("known: %v, %q", names, all)
		}
		if got := names.SecretCopy(envoy.Name(object("team-prod", "tls").Key)); got == "team-prod-tls" {
			t.Error("an object has the copy of another")
		}
	})
}
