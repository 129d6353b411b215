// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// listed is a role: verbs by resource, and whether that is all of it.
type listed struct {
	slices, endpoints string
	all               bool
}

func (l *listed) Known() bool { return l.all }

func (l *listed) Allows(verb string, ref k8s.Ref) bool {
	verbs := l.slices
	if ref.Resource == endpointsResource {
		verbs = l.endpoints
	}
	return slices.Contains(strings.Split(verbs, ","), verb)
}

// changing is a role that may change while it is read.
type changing struct{ atomic.Pointer[listed] }

func (c *changing) Known() bool { return c.Load().Known() }

func (c *changing) Allows(verb string, ref k8s.Ref) bool { return c.Load().Allows(verb, ref) }

const (
	reads  = "get,list,watch"
	writes = reads + ",create,update,delete,patch"
)

// The roles of the charts, ours, and those of which not all is known.
func TestDecision(t *testing.T) {
	for what, test := range map[string]struct {
		role  listed
		want  decision
		known bool
	}{
		"1.17, 1.18":                      {listed{reads, writes, true}, decision{byEndpoints, false}, true},
		"1.18 with an endpoint sync":      {listed{writes, writes, true}, decision{bySlice, true}, true},
		"1.19":                            {listed{writes, writes, true}, decision{bySlice, true}, true},
		"1.20":                            {listed{writes, "", true}, decision{bySlice, false}, true},
		"neither":                         {listed{reads, reads, true}, decision{noWay, false}, true},
		"slices that cannot be read":      {listed{"create,update,delete", writes, true}, decision{byEndpoints, false}, true},
		"slices that can be deleted":      {listed{reads + ",delete", writes, true}, decision{byEndpoints, true}, true},
		"Endpoints that cannot be listed": {listed{writes, "delete,get", true}, decision{bySlice, false}, true},
		"a list with holes, as of 1.18":   {listed{reads, writes, false}, decision{byEndpoints, false}, true},
		"a list with holes, as of 1.20":   {listed{writes, "", false}, decision{bySlice, false}, true},
		"not known":                       {listed{}, decision{bySlice, false}, false},
	} {
		if got, known := decide(&test.role); got != test.want || known != test.known {
			t.Errorf("%s: %v, %t, want %v, %t", what, got, known, test.want, test.known)
		}
	}
}

type testDuty struct{}

// state is what the health tree says of placeholders, and which kinds a key needs.
func state(tree *health.Tree, p *Placeholders[testDuty], key slim.Key) (level health.Level, needs string) {
	for _, s := range tree.Snapshot() {
		level = s.Level
	}
	if p.Slices.Needs(key) {
		needs += "EndpointSlices "
	}
	if p.Endpoints.Needs(key) {
		needs += "Endpoints "
	}
	return level, strings.TrimSpace(needs)
}

// What is watched follows from the role; a role that is not known is waited for, but not for ever.
func TestNeed(t *testing.T) {
	key := slim.Key{Namespace: "a", Name: "b"}
	for what, test := range map[string]struct {
		role  listed
		level health.Level
		needs string
	}{
		"1.18":    {listed{reads, writes, true}, health.OK, "Endpoints"},
		"1.19":    {listed{writes, writes, true}, health.OK, "EndpointSlices Endpoints"},
		"1.20":    {listed{writes, "", true}, health.OK, "EndpointSlices"},
		"neither": {listed{"", "", true}, health.Degraded, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			tree, role := health.NewTree(), &listed{}
			p := newPlaceholders[testDuty](role, tree.Reporter("duty"))
			if placed, pause := p.Need(key); placed != nil || pause != rolePause {
				t.Errorf("%s: %v, %s before the role is known", what, placed, pause)
			}
			*role = test.role
			placed, pause := p.Need(key)
			level, needs := state(tree, p, key)
			if level != test.level || needs != test.needs || pause != 0 || (placed != nil) != (test.needs == "") {
				t.Errorf("%s: %s, %q, %v, %s", what, level, needs, placed, pause)
			}
			p.Drop(key)
			if level, needs := state(tree, p, key); needs != "" || level != "" {
				t.Errorf("%s: %q, %q after Drop", what, level, needs)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		tree := health.NewTree()
		p := newPlaceholders[testDuty](&listed{}, tree.Reporter("duty"))
		time.Sleep(roleLimit)
		p.Need(key)
		if _, needs := state(tree, p, key); needs != "EndpointSlices" {
			t.Errorf("%q of a role that is never known", needs)
		}
	})
}

// Keys are reconciled again when the role changes, once; those that have been are not.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		role := &changing{}
		role.Store(&listed{reads, writes, true})
		p := newPlaceholders[testDuty](role, health.NewTree().Reporter("duty"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var queued []string
		var enqueue reconcile.Enqueue = func(key slim.Key, _ ...k8s.Trigger) { queued = append(queued, key.Name); p.Need(key) }
		go p.Follow(ctx, enqueue)
		for _, name := range []string{"a", "b", "c", "gone"} {
			p.Need(slim.Key{Name: name})
		}
		p.Drop(slim.Key{Name: "gone"})
		time.Sleep(2 * roleInterval)
		synctest.Wait()
		if len(queued) != 0 {
			t.Errorf("%q without a change", queued)
		}
		role.Store(&listed{writes, "", true})
		if !p.isOutdated(decision{byEndpoints, false}) || p.isOutdated(decision{bySlice, false}) {
			t.Error("the change is not seen")
		}
		p.Need(slim.Key{Name: "c"})
		time.Sleep(3 * roleInterval)
		synctest.Wait()
		if slices.Sort(queued); !slices.Equal(queued, []string{"a", "b"}) || p.Endpoints.Needs(slim.Key{Name: "a"}) {
			t.Errorf("%q after the change", queued)
		}
	})
}

// An EndpointSlice of the right shape is left as it is, whatever else it has; another one gets it.
func TestSlice(t *testing.T) {
	var s discoveryv1.EndpointSlice
	setSlice(&s, true)
	if s.AddressType != discoveryv1.AddressTypeIPv4 || s.Endpoints[0].Addresses[0] != placeholderIP || *s.Ports[0].Port != placeholderPort {
		t.Errorf("it is %v", s)
	}
	s.Endpoints[0].NodeName = new("n1")
	before := s.DeepCopy()
	if setSlice(&s, false); !reflect.DeepEqual(&s, before) {
		t.Errorf("it was changed to %v", s)
	}
	for what, damage := range map[string]func(){
		"another address": func() { s.Endpoints[0].Addresses = []string{"10.0.0.1"} },
		"not ready":       func() { s.Endpoints[0].Conditions.Ready = new(false) },
		"two endpoints":   func() { s.Endpoints = append(s.Endpoints, s.Endpoints[0]) },
		"no ports":        func() { s.Ports = nil },
		"another port":    func() { s.Ports[0].Port = new(int32(1)) },
		"a named port":    func() { s.Ports[0].Name = new("x") },
	} {
		damage()
		if setSlice(&s, false); len(s.Endpoints) != 1 || !isPlaceholder(s.Endpoints[0]) || len(s.Ports) != 1 || !isPlaceholderPort(s.Ports[0]) {
			t.Errorf("%s: it is %v", what, s)
		}
	}
}
