// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
)

type aDuty struct{}

// leftCopy is a Secret in the namespace c. Without an owner it is no copy.
func leftCopy(t *testing.T, name string, of ...Object) *Left[aDuty] {
	t.Helper()
	labels := ""
	for _, o := range of {
		labels = fmt.Sprintf("%q:%q,%q:%q", NamespaceKey(o.Kind), o.Namespace, NameKey(o.Kind), o.Name)
	}
	s := &Left[aDuty]{}
	if err := json.Unmarshal(fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"c","labels":{%s}}}`, name, labels), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func newLeftCopies(t *testing.T, all ...*Left[aDuty]) *stream.Local[Left[aDuty]] {
	t.Helper()
	copies, err := stream.NewLocal[Left[aDuty]]()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(copies.Close)
	copies.Replace(all...)
	return copies
}

// aRole is one that denies what it has, if it is known.
type aRole struct {
	known  bool
	denied string
}

func (r aRole) Denies(verb string, _ k8s.Ref) bool { return r.known && verb == r.denied }
func (r aRole) Known() bool                        { return r.known }

// SEC-21; number 2.1 of the contract's tenants.md: where nothing is copied to a namespace any more, a copy that was left there is named for its own object
// alone.
func TestNamesOfCopiesThatAreLeft(t *testing.T) {
	victim, attacker, renamed, byHand, authority := object("team-prod", "tls"), object("team", "prod-tls"), object("a", "renamed"), object("a", "hand"), object("team", "prod-cfgmap-ca")
	copies := newLeftCopies(t,
		leftCopy(t, "team-prod-tls", victim), leftCopy(t, "a-renamed-0123456789ab", renamed), leftCopy(t, byHand.CopyName()), leftCopy(t, authority.CopyName(), authority))
	names, err := AwaitLeft(t.Context(), copies, aRole{known: true}, "c")
	if err != nil {
		t.Fatal(err)
	}
	check := func(of Object, want string) {
		t.Helper()
		got := names.SecretCopy(envoy.Name(of.Key))
		if of.Kind == ConfigMap {
			got = names.ConfigMapCopy(envoy.Name(of.Key))
		}
		if got != want {
			t.Errorf("%s: %s, want %s", of, got, want)
		}
	}
	check(victim, "team-prod-tls")
	check(attacker, "team-prod-tls-")
	check(renamed, "a-renamed-0123456789ab")
	check(byHand, "a-hand")
	check(object("a", "none"), "a-none")
	check(Object{ConfigMap, object("team-prod", "ca").Key}, "team-prod-cfgmap-ca-")
	check(Object{ConfigMap, object("a", "ca").Key}, "a-cfgmap-ca")
	copies.Delete(leftCopy(t, "team-prod-tls").Key())
	check(attacker, "team-prod-tls")
}

// SEC-21: nothing is translated before the copies are known that are left, unless the role does not allow to list them: names are the plain ones then.
func TestNamesAwaitCopiesThatAreLeft(t *testing.T) {
	for name, test := range map[string]struct {
		role     aRole
		answered bool // before the copies are known
	}{
		"allowed":                       {aRole{known: true}, false},
		"list is denied":                {aRole{true, "list"}, true},
		"watch is denied":               {aRole{true, "watch"}, true},
		"what is allowed is not listed": {aRole{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				copies, err := stream.NewLocal[Left[aDuty]]()
				if err != nil {
					t.Fatal(err)
				}
				defer copies.Close()
				var names envoy.CopyNames
				var awaitErr error
				answered := false
				go func() { names, awaitErr = AwaitLeft(t.Context(), copies, test.role, "c"); answered = true }()
				time.Sleep(time.Hour) // of the test's clock
				synctest.Wait()
				if answered != test.answered {
					t.Fatalf("answered: %t", answered)
				}
				copies.Upsert(leftCopy(t, "team-prod-tls", object("team-prod", "tls")))
				copies.Synced()
				synctest.Wait()
				if !answered || awaitErr != nil || (names == nil) != test.answered {
					t.Fatalf("answered: %t, %v, %v", answered, names, awaitErr)
				}
				if names != nil && names.SecretCopy(envoy.Name(object("team", "prod-tls").Key)) != "team-prod-tls-" {
					t.Error("an object has the copy of another")
				}
			})
		})
	}
	if names, err := AwaitLeft(t.Context(), newLeftCopies(t), aRole{known: true}, ""); names != nil || err != nil {
		t.Errorf("without a namespace: %v, %v", names, err)
	}
}
