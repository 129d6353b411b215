// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudtest

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// Subject is a provider to check, with a cloud of its own: it has the instance of Node and one more, and the instance of
// Node has one interface with room for eight addresses, and an empty slot. A cloud that answers in pages has pages of one.
type Subject struct {
	// New returns a provider of the cloud, whose calls pass the door.
	New func(*outside.Door) cloudipam.Provider
	// Node is the CiliumNode of an instance; Other is the id of the other instance.
	Node  *cloudipam.Node
	Other string
	// Changes is the number of calls so far that have changed the cloud.
	Changes func() int
	// Breaker is asked by the cloud whether a call fails.
	Breaker *Breaker
	// Lag has the lists of the cloud be late from now on: they do not show, for a while, what is changed. It is nil for a cloud that is
	// consistent.
	Lag func()
	// Static are the tags of a public address of the cloud that is free, if the provider is a [cloudipam.StaticAddresser]. No other
	// address has them.
	Static map[string]string
	// Fixed is a cloud whose instances keep their interfaces and addresses: its provider attaches and releases nothing, and
	// there is no empty slot.
	Fixed bool
}

// Check tests the promises of a provider, each as a subtest of its name. newSubject is called for each.
func Check(t *testing.T, newSubject func(*testing.T) Subject) {
	t.Helper()
	for name, check := range map[string]func(*checker){
		"Complete": (*checker).complete, "Fresh": (*checker).fresh, "Immutable": (*checker).immutable, "Pure": (*checker).pure,
		"Exact": (*checker).exact, "Lasting": (*checker).lasting, "Static": (*checker).static, "IPv6": (*checker).prefix, "Whole": (*checker).whole, "Idempotent": (*checker).idempotent, "Guarded": (*checker).guarded,
		"Prompt": (*checker).prompt, "Concurrent": (*checker).concurrent,
	} {
		t.Run(name, func(t *testing.T) {
			k := &checker{T: t, Subject: newSubject(t)}
			if k.Breaker == nil {
				t.Fatal("Subject.Breaker is missing: no failure of the cloud can be tried")
			}
			door := k.door(func(*outside.Scope) {})
			k.calls = outside.NewAPIMetrics("checked")(metrics.Factory{})
			k.p = k.New(door.Measured(k.calls))
			check(k)
		})
	}
}

type checker struct {
	*testing.T
	Subject
	p     cloudipam.Provider
	calls *outside.APIMetrics // that have passed the door
}

// door is a door of a module in its term.
func (k *checker) door(edit func(*outside.Scope)) *outside.Door {
	fence := leading.Unfenced()
	k.Cleanup(fence.Close)
	s := outside.Scope{
		Module: cell.ModuleInfo{ID: "ipam.checked", Term: "leader"}, Log: slog.New(slog.DiscardHandler),
		Health: health.NewTree().Reporter("ipam.checked"), Fence: fence, Book: explain.NewHistory(),
	}
	edit(&s)
	return outside.New(s, "checked", outside.Limits{QPS: 1e6, Burst: 1e6})
}

// ctx is that of a decision.
func (k *checker) ctx() context.Context {
	return explain.WithCause(k.Context(), &explain.Cause{Rule: "ipam.checked check"})
}

func (k *checker) read() (*cloudipam.State, *cloudipam.Instance) {
	k.Helper()
	return k.readFor(k.Node.InstanceID)
}

// readFor reads everything, and returns one of the instances, too.
func (k *checker) readFor(id string) (*cloudipam.State, *cloudipam.Instance) {
	k.Helper()
	s, err := k.p.Read(k.Context())
	if err != nil {
		k.Fatal(err)
	}
	i := s.Instances[id]
	if i == nil {
		k.Fatalf("Read does not have the instance %s", id)
	}
	return s, i
}

// one reads the instance alone.
func (k *checker) one() *cloudipam.Instance {
	k.Helper()
	all, err := k.p.ReadInstances(k.Context(), []string{k.Node.InstanceID})
	if err != nil || all[k.Node.InstanceID] == nil {
		k.Fatalf("ReadInstances of %s returns %v, %v", k.Node.InstanceID, ids(all), err)
	}
	return all[k.Node.InstanceID]
}

// assign adds addresses and returns the instance with them.
func (k *checker) assign(count int) *cloudipam.Instance {
	k.Helper()
	s, i := k.read()
	room, ok := k.p.FreeInterface(k.Node, i, s.Subnets)
	if !ok || room.Count < count {
		k.Fatalf("FreeInterface returns %+v, %v: want room for %d addresses on an interface of %s", room, ok, count, i.ID)
	}
	if err := k.p.Assign(k.ctx(), k.Node, i, room, count); err != nil {
		k.Fatal(err)
	}
	return k.one()
}

func ids[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// guardedCalls is the number of calls that have passed the door.
func (k *checker) guardedCalls() (n int) {
	k.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(k.calls.Duration)
	families, err := registry.Gather()
	if err != nil {
		k.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			n += int(m.GetHistogram().GetSampleCount())
		}
	}
	return n
}
