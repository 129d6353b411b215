// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// labelsUnderFaults are what the operator makes for the labels of pods, and
// deletes when neither pods nor endpoints have them any more. Pods and namespaces
// get other labels; identities are deleted by hand, and made with names and labels
// that stand for nothing.
type labelsUnderFaults struct {
	*podsUnderFaults
	registrar *registrar
	odd       int

	mu        sync.Mutex
	users     map[string]time.Time // label sets of pods and numbers of endpoints, since when they are in use
	hands     map[types.UID]bool   // what the test deletes
	collected int                  // by the operator
	longest   time.Duration        // that any of it was in use all the same
}

// lateUse is how long an identity has been in use when it is safe from deletion. A
// minute is promised (docs/wire/identitygc.md, IDGC-19); deleting a few identities
// takes seconds, on a machine with ten times as much to do as it has cores half a minute.
const lateUse = 30 * time.Second

func identitiesUnderFaults(f *turmoil) underFaults {
	l := &labelsUnderFaults{
		podsUnderFaults: f.pods, registrar: f.pods.tenants.registrar(),
		users: map[string]time.Time{}, hands: map[types.UID]bool{},
	}
	f.follows(v2.CiliumIdentityResource)
	f.witness(v2.CiliumIdentityResource, l.see)
	return underFaults{
		name: "identities",
		args: []string{
			"--identity-management-mode=operator", "--identity-allocation-mode=crd",
			"--identity-gc-interval=500ms", "--identity-heartbeat-timeout=1s",
		},
		churn:   []func(){l.relabelPod, l.relabelPod, l.relabelPod, l.relabelNamespace, l.deleteSome, l.deleteSome, l.makeOdd},
		note:    l.note,
		newTerm: func() { l.relabelNamespace(); l.deleteSome() },
		last:    l.deleteSilent,
		rest:    l.rest,
		grace:   l.grace,
		missing: l.missing,
		end:     l.end,
	}
}

func (l *labelsUnderFaults) relabelPod() {
	if pod, ok := l.some(); ok {
		l.tenants.relabel(pod.NamespacedName, "app", l.app())
	}
}

func (l *labelsUnderFaults) relabelNamespace() {
	l.tenants.label([]string{north, south}[l.r.IntN(2)], map[string]string{"team": fmt.Sprint("team-", l.r.IntN(3))})
}

func (l *labelsUnderFaults) deleteSome() { l.deleteOne(l.tenants.stands) }

func (l *labelsUnderFaults) deleteSilent() {
	set := written(l.tenants.set(home, map[string]string{"app": silent}))
	l.deleteOne(func(identity *unstructured.Unstructured) bool {
		return l.tenants.stands(identity) && labelSet(identity) == set
	})
}

// deleteOne deletes an identity by hand.
func (l *labelsUnderFaults) deleteOne(which func(*unstructured.Unstructured) bool) {
	list := slices.DeleteFunc(l.list(v2.CiliumIdentityResource).Items, func(i unstructured.Unstructured) bool { return !which(&i) })
	at, ok := one(l.r, list)
	if !ok {
		return
	}
	l.mu.Lock()
	l.hands[list[at].GetUID()] = true
	l.mu.Unlock()
	err := l.dynamic.Resource(v2.CiliumIdentityResource).Delete(l.t.Context(), list[at].GetName(), metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(list[at].GetUID())),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		l.t.Error(err)
	}
}

// makeOdd makes an identity that stands for nothing. What has no number of the
// cluster is left alone, whatever its labels; what has no labels is not used.
func (l *labelsUnderFaults) makeOdd() {
	if l.odd++; l.odd > 30 {
		return
	}
	set, n := l.tenants.set(l.somewhere(), map[string]string{"app": l.app()}), l.number()
	switch l.odd % 3 {
	case 0:
		name := fmt.Sprint("odd-", n)
		l.want(l.tenants.identity(name, set), "identity "+name+", which is no number,")
	case 1:
		name := fmt.Sprint(int(l.tenants.numbers.Max) + n)
		l.want(l.tenants.identity(name, set), "identity "+name+" of another cluster")
	case 2:
		name := fmt.Sprint(int(l.tenants.numbers.Min) + n)
		l.tenants.identity(name, nil)
	}
}

// note takes note of what is in use after something has happened.
func (l *labelsUnderFaults) note() {
	now := map[string]time.Time{}
	for _, set := range l.tenants.wanted() {
		now[set] = time.Now()
	}
	for _, pod := range l.pods {
		now[pod.identity] = time.Now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for user, since := range l.users {
		if _, still := now[user]; still {
			now[user] = since
		}
	}
	l.users = now
}

// see checks that no identity that the operator deletes has been in use for long.
func (l *labelsUnderFaults) see(kind watch.EventType, identity *unstructured.Unstructured) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kind != watch.Deleted || l.hands[identity.GetUID()] || !l.tenants.stands(identity) {
		return
	}
	l.collected++
	for _, user := range []string{labelSet(identity), identity.GetName()} {
		since, used := l.users[user]
		if !used {
			continue
		}
		l.longest = max(l.longest, time.Since(since))
		if time.Since(since) > lateUse {
			l.t.Errorf("revision %s: identity %s of %s was deleted, and %s is in use since %s",
				identity.GetResourceVersion(), identity.GetName(), labelSet(identity), user, time.Since(since))
		}
	}
}

// rest: there is an identity for each label set of a pod.
func (l *labelsUnderFaults) rest() error {
	numbers := l.tenants.numbersBySet()
	for _, set := range l.tenants.wanted() {
		if numbers[set] == "" {
			return fmt.Errorf("there is no identity of %s", set)
		}
	}
	return nil
}

// grace: there is one of each and no other, and none is marked.
func (l *labelsUnderFaults) grace() error {
	want, numbers := l.tenants.wanted(), map[string]string{}
	for _, i := range l.list(v2.CiliumIdentityResource).Items {
		set, at := labelSet(&i), i.GetAnnotations()["io.cilium.heartbeat"]
		switch twin := numbers[set]; {
		case !l.tenants.isNumber(i.GetName()): // it stays
			continue
		case !slices.Contains(want, set):
			return fmt.Errorf("identity %s of %q is not in use, marked at %q", i.GetName(), set, at)
		case twin != "":
			return fmt.Errorf("identities %s and %s have the same labels %q", twin, i.GetName(), set)
		case at != "":
			return fmt.Errorf("identity %s of %q is in use, marked at %q", i.GetName(), set, at)
		}
		numbers[set] = i.GetName()
	}
	return nil
}

func (l *labelsUnderFaults) missing() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.collected == 0 || len(l.hands) == 0 {
		return fmt.Errorf("%d identities were deleted by the operator, and %d by hand", l.collected, len(l.hands))
	}
	return nil
}

func (l *labelsUnderFaults) end() {
	eventually(l.t, "all is seen of identities", func() bool {
		seen := l.registrar.count()
		return seen.made-seen.deleted == len(l.tenants.identities())
	})
	all := l.registrar.count()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("identities: %s; %d by the operator, what of that was in use was so for %s at most", all, l.collected, l.longest.Round(time.Millisecond))
	if all.most > l.harm.twins {
		l.t.Errorf("there were up to %d identities of one label set", all.most)
	}
}
