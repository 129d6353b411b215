// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func TestCell(t *testing.T) { celltest.Check(t, Cell) }

func node(name, version string) Trigger {
	return Trigger{Kind: "CiliumNode", Name: name, ResourceVersion: version}
}

func write(name string, c *Cause) Write {
	return Write{Module: "ipam.clusterpool", Verb: "update", Resource: "ciliumnodes.cilium.io", Name: name, Result: "ok", Revision: "18", Cause: c}
}

func TestWritesAreFoundByWhatTheyChangedAndByWhatSetThemOff(t *testing.T) {
	b := NewHistory()
	b.RecordWrite(write("a", &Cause{Rule: "ipam.clusterpool allocate", Triggers: []Trigger{node("b", "17")}}))
	b.RecordWrite(write("other", nil))
	for _, kind := range []string{"CiliumNode", "ciliumnode", "ciliumnodes", "CiliumNodes.cilium.io"} {
		for _, name := range []string{"a", "b"} {
			if x := b.For(kind, "", name); len(x.Writes) != 1 || x.Writes[0].Seq != 1 {
				t.Errorf("%s/%s: %+v", kind, name, x)
			}
		}
	}
	for _, missing := range [][3]string{{"CiliumNode", "", "c"}, {"CiliumNode", "ns", "a"}, {"Pod", "", "a"}} {
		if x := b.For(missing[0], missing[1], missing[2]); len(x.Writes) != 0 {
			t.Errorf("%v: %+v", missing, x)
		}
	}
}

func TestKindsInEverySpelling(t *testing.T) {
	for _, same := range [][]string{
		{"Pod", "pods", "POD"}, {"Ingress", "ingresses", "ingresses.networking.k8s.io"},
		{"CiliumNetworkPolicy", "ciliumnetworkpolicies.cilium.io"}, {"CiliumIdentity", "ciliumidentities"}, {"EndpointSlice", "endpointslices.discovery.k8s.io"},
		{"Service", "svc"}, {"CiliumNode", "cn"}, {"CiliumEndpointSlice", "ces"}, {"Namespace", "ns"},
	} {
		for _, kind := range same {
			if !sameKind(kind, same[0]) {
				t.Errorf("%s is not taken for %s", kind, same[0])
			}
		}
	}
	if sameKind("Pod", "Node") {
		t.Error("Pod is taken for Node")
	}
}

func TestLastDecisionOfEachRule(t *testing.T) {
	b := NewHistory()
	decide := func(key string, err error, do func(context.Context)) {
		c := &Cause{Rule: "duty rule", Triggers: []Trigger{node(key, "5")}}
		do(WithCause(t.Context(), c))
		b.RecordDecision(c, key, err)
	}
	nothing := func(context.Context) {}
	for _, test := range []struct {
		err     error
		do      func(context.Context)
		outcome string
	}{
		{nil, nothing, "equal"},
		{nil, func(ctx context.Context) { SetReason(ctx, "waits for its pod") }, "waits for its pod"},
		{nil, func(ctx context.Context) { b.RecordWrite(write("a", CauseOf(ctx))) }, "wrote"},
		{errors.New("refused: 403"), nothing, "refused: 403"},
	} {
		decide("a", test.err, test.do)
		decide("b", nil, nothing)
		x := b.For("CiliumNode", "", "a")
		if len(x.Decisions) != 1 || x.Decisions[0].Outcome != test.outcome {
			t.Errorf("%+v, want one decision %q", x.Decisions, test.outcome)
		}
	}
}

// A look for its own sake that finds all well does not hide why it is so.
// A write that was refused, or whose response was not believed, is none of the decision.
func TestAFailedWriteIsNoOutcome(t *testing.T) {
	b := NewHistory()
	c := &Cause{Rule: "m allocate"}
	w := write("a", c)
	w.Result = "404 Not Found"
	b.RecordWrite(w)
	b.RecordDecision(c, "a", nil)
	if x := b.For("CiliumNode", "", "a"); len(x.Decisions) != 1 || x.Decisions[0].Outcome != equal {
		t.Errorf("%+v", x.Decisions)
	}
}

func TestPeriodicLooksHideNothing(t *testing.T) {
	b := NewHistory()
	look := func(c *Cause, do func(context.Context)) string {
		do(WithCause(t.Context(), c))
		b.RecordDecision(c, "a", nil)
		return b.For("Any", "", "a").Decisions[0].Outcome
	}
	nothing := func(context.Context) {}
	note := func(ctx context.Context) { SetReason(ctx, "waits") }
	writes := func(ctx context.Context) { b.RecordWrite(write("a", CauseOf(ctx))) }
	triggered := func() *Cause { return &Cause{Rule: "rule", Triggers: []Trigger{node("a", "5")}} }
	for _, step := range []struct {
		cause *Cause
		do    func(context.Context)
		want  string
	}{
		{&Cause{Rule: "rule"}, nothing, "equal"},
		{triggered(), writes, "wrote"},
		{&Cause{Rule: "rule"}, nothing, "wrote"},
		{&Cause{Rule: "rule"}, note, "waits"},
		{&Cause{Rule: "rule"}, nothing, "equal"},
		{&Cause{Rule: "rule"}, writes, "wrote"},
		{triggered(), nothing, "equal"},
	} {
		if got := look(step.cause, step.do); got != step.want {
			t.Errorf("explained as %q, want %q", got, step.want)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	b := NewHistory()
	for i := range 3 * keptDecisions {
		c := &Cause{Rule: "rule"}
		b.RecordWrite(write(fmt.Sprint(i), c))
		b.RecordDecision(c, fmt.Sprint(i), nil)
	}
	writes := b.Writes(0)
	if len(writes) != keptWrites || writes[0].Seq != 3*keptDecisions-keptWrites+1 || writes[keptWrites-1].Seq != 3*keptDecisions {
		t.Errorf("%d writes, from %d to %d", len(writes), writes[0].Seq, writes[len(writes)-1].Seq)
	}
	if b.decisions.len() != keptDecisions {
		t.Errorf("%d decisions", b.decisions.len())
	}
	if x := b.For("Any", "", fmt.Sprint(3*keptDecisions-1)); len(x.Decisions) != 1 {
		t.Error("the last decision is forgotten")
	}
}

func TestFollowMissesNothing(t *testing.T) {
	b := NewHistory()
	const writers, each = 4, 200
	b.RecordWrite(write("before", nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for i := range each {
				b.RecordWrite(write(fmt.Sprint(i), nil))
			}
		})
	}
	next := uint64(2)
	for w := range b.Follow(ctx, 1) {
		if w.Seq != next {
			t.Fatalf("write %d follows %d", w.Seq, next-1)
		}
		if next++; next == writers*each+2 {
			cancel()
		}
	}
	all.Wait()
	if next != writers*each+2 {
		t.Errorf("%d writes", next)
	}
}

func TestNilBook(t *testing.T) {
	var b *History
	b.RecordWrite(write("a", nil))
	b.RecordDecision(&Cause{}, "a", nil)
}

func TestText(t *testing.T) {
	b := NewHistory()
	parent := &Cause{Rule: "pool grew"}
	c := &Cause{Rule: "ipam.clusterpool allocate", Triggers: []Trigger{node("a", "17"), {Kind: "Pod", Namespace: "ns", Name: "p"}}, Parent: parent}
	b.RecordWrite(write("a", c))
	b.RecordDecision(c, "a", nil)
	var out strings.Builder
	if err := b.For("CiliumNode", "", "a").WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  update ciliumnodes.cilium.io a: ok at 18; ipam.clusterpool allocate, set off by CiliumNode a at 17, Pod ns/p, because of pool grew\n",
		"  ipam.clusterpool allocate, a: wrote; set off by CiliumNode a at 17, Pod ns/p\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

// Remembering a write costs at most 5 µs and 5 allocations.
func BenchmarkWrite(b *testing.B) {
	book := NewHistory()
	triggers := []Trigger{node("a", "17")}
	keys := make([]string, 2*keptDecisions)
	for i := range keys {
		keys[i] = fmt.Sprint("node-", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c := &Cause{Rule: "ipam.clusterpool allocate", Triggers: triggers}
		book.RecordWrite(write(keys[i%len(keys)], c))
		book.RecordDecision(c, keys[i%len(keys)], nil)
	}
}

func TestAWriteCostsFewAllocations(t *testing.T) {
	book := NewHistory()
	c := &Cause{Rule: "rule", Triggers: []Trigger{node("a", "17")}}
	allocs := testing.AllocsPerRun(1000, func() {
		book.RecordWrite(write("a", c))
		book.RecordDecision(c, "a", nil)
	})
	if allocs > 5 {
		t.Errorf("%.1f allocations per write", allocs)
	}
}

// What an object was told is in its explanation, of each module and reason the last, and no more than are kept.
func TestEventsOfAnObject(t *testing.T) {
	b := NewHistory()
	b.RecordEvent("ingress", "Ingress", "shop", "web", "HostOfAnother", "host a.test belongs to old/web")
	b.RecordEvent("ingress", "Ingress", "shop", "web", "HostOfAnother", "host b.test belongs to old/web")
	b.RecordEvent("secretsync", "Ingress", "shop", "web", "SecretNotFound", "Secret shop/t\x1b[31m does not exist")
	b.RecordEvent("ingress", "Ingress", "other", "web", "HostOfAnother", "x")
	x := b.For("ingresses", "shop", "web")
	var out strings.Builder
	if err := x.print(&out, "Ingress", "shop", "web"); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if len(x.Events) != 2 || !strings.HasPrefix(got, "Events:\n") || !strings.Contains(got, "ingress: HostOfAnother: host b.test belongs to old/web\n") ||
		!strings.Contains(got, "secretsync: SecretNotFound: ") || strings.Contains(got, "\x1b") {
		t.Errorf("%v\n%s", x.Events, got)
	}
	for i := range keptEvents {
		b.RecordEvent("ingress", "Ingress", "many", fmt.Sprint(i), "HostOfAnother", "x")
	}
	if x := b.For("Ingress", "shop", "web"); len(x.Events) != 0 || b.events.len() != keptEvents {
		t.Errorf("%d Events of %d are kept", len(x.Events), b.events.len())
	}
	var none *History
	none.RecordEvent("ingress", "Ingress", "shop", "web", "HostOfAnother", "x")
}
