// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/spire/spiretest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// paths are the paths that a duty wants.
type paths struct {
	mu     sync.Mutex
	wanted map[string]bool
}

func (p *paths) set(path string, wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted[path] = wanted
}

func (p *paths) State(path string) State {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted[path] {
		return Wanted
	}
	return Unwanted
}

func (p *paths) All() iter.Seq[string] {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := maps.Clone(p.wanted)
	maps.DeleteFunc(wanted, func(_ string, is bool) bool { return !is })
	return maps.Keys(wanted)
}

func (p *paths) Len() (n int, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, is := range p.wanted {
		if is {
			n++
		}
	}
	return n, true
}

func (*paths) Confirm(_ context.Context, stale []string) ([]string, error) { return stale, nil }

func (*paths) Converged(func(string) bool) {}

// kindOf are entries with a parent, whose paths begin with a prefix.
func kindOf(parent, prefix string) Kind[string] {
	return Kind[string]{
		Parent: parent, Path: func(path string) string { return path },
		Parse:     func(path string) (string, bool) { return path, strings.HasPrefix(path, prefix) },
		Selectors: func(string) []Selector { return []Selector{{Type: "k8s", Value: "ns:" + prefix}} },
		Trigger:   func(path string) k8s.Trigger { return k8s.Trigger{Kind: "Path", Name: path} },
	}
}

// newPaths is a registrar of paths that does not run.
func newPaths(connection *Connection, tree *health.Tree, id string, k Kind[string], wanted ...string) (*Registrar[string], *paths) {
	info, reporter, log := cell.ModuleInfo{ID: id, Term: "leader"}, tree.Reporter(id), slog.New(slog.DiscardHandler)
	p := &paths{wanted: map[string]bool{}}
	for _, path := range wanted {
		p.set(path, true)
	}
	deps := Deps{
		Connection: connection, Health: reporter, Log: log, MaxShare: 1,
		Scope: outside.Scope{Module: info, Log: log, Health: reporter, Fence: leading.Unfenced(), Book: explain.NewHistory()},
		Queue: reconcile.Deps{Module: info, Log: log, Health: reporter, Book: explain.NewHistory()},
	}
	return NewRegistrar(deps, k, p, NewEntryMetrics(metrics.Factory{}, "paths")), p
}

// SPIRE-19: S2 of the contract's mutual-auth.md. What another operator keeps in the trust domain is deleted once, at most; the own entries are kept in
// order all the same.
func TestEntriesOfAnotherOperator(t *testing.T) {
	for name, keep := range map[string]bool{"entries are pruned": false, "entries are kept": true} {
		t.Run(name, func(t *testing.T) {
			s := spiretest.Start(t, "spiffe.cilium")
			connection := connect(t, s)
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			t.Cleanup(func() { cancel(); running.Wait() })
			tree := health.NewTree()
			k := kindOf("/first", "/a/")
			r, p := newPaths(connection, tree, "first", k, "/a/1")
			r.Interval, r.deps.Keep, r.deps.Unnumbered = 20*time.Millisecond, keep, true
			foreign := func() {
				s.Put(spiretest.Entry{SPIFFEID: spiretest.ID{TrustDomain: "spiffe.cilium", Path: "/a/9"}, ParentID: spiretest.ID{TrustDomain: "spiffe.cilium", Path: "/first"}, Selectors: []spiretest.Selector{{Type: "k8s", Value: "ns:/a/"}}})
			}
			foreign()
			running.Go(func() { _ = r.Run(ctx) })
			has := func(path string) bool { _, exists := s.Entries()[path]; return exists }
			operatortest.Eventually(t, "the own entry is there", func() bool { return has("/a/1") })
			if !keep {
				operatortest.Eventually(t, "the other one is deleted", func() bool { return !has("/a/9") })
				foreign()
				operatortest.Eventually(t, "that it is back is said", func() bool {
					return slices.ContainsFunc(tree.Degraded(), func(d health.Status) bool { return strings.Contains(d.Message, "/a/9 is back after it was deleted") })
				})
			}
			calls := s.Calls()["ListEntries"]
			operatortest.Eventually(t, "all are compared three times more", func() bool { return s.Calls()["ListEntries"] > calls+3 })
			if !has("/a/9") {
				t.Error("the entry of another operator is deleted")
			}
			of := func(state string) float64 { return testutil.ToFloat64(r.metrics.Entries.WithLabelValues(state)) }
			operatortest.Eventually(t, "it is foreign (S9 of the contract's mutual-auth.md)", func() bool { return of(StatePresent) == 1 && of(StateForeign) == 1 })
			p.set("/a/1", false)
			p.set("/a/2", true)
			r.Enqueue(k8s.Trigger{}, "/a/1", "/a/2")
			operatortest.Eventually(t, "the own entries follow", func() bool { return !has("/a/1") && has("/a/2") })
		})
	}
}

// SPIRE-12: S1 of the contract's mutual-auth.md. Entries that the server loses without a word are there again within the interval of counts; a server that
// counts others, too, is not listed again and again.
func TestLostEntriesAreNoticed(t *testing.T) {
	for name, countsAll := range map[string]bool{"it counts what it lists": false, "it counts all": true} {
		t.Run(name, func(t *testing.T) {
			s := spiretest.Start(t, "spiffe.cilium")
			connection := connect(t, s)
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			t.Cleanup(func() { cancel(); running.Wait() })
			if countsAll {
				s.CountAll()
			}
			s.Put(spiretest.Entry{SPIFFEID: spiretest.ID{TrustDomain: "spiffe.cilium", Path: "/z"}, ParentID: spiretest.ID{TrustDomain: "spiffe.cilium", Path: "/other"}})
			r, p := newPaths(connection, health.NewTree(), "first", kindOf("/first", "/a/"), "/a/1", "/a/2", "/a/3")
			r.CountInterval = 20 * time.Millisecond
			running.Go(func() { _ = r.Run(ctx) })
			operatortest.Eventually(t, "the entries are there", func() bool { return s.Len() == 4 })
			p.set("/a/3", false)
			r.Enqueue(k8s.Trigger{}, "/a/3")
			operatortest.Eventually(t, "one is deleted", func() bool { return s.Len() == 3 })
			lists := s.Calls()["ListEntries"]
			if countsAll {
				time.Sleep(200 * time.Millisecond) // what is tested is that time passes
			} else {
				counts := s.Calls()["CountEntries"]
				operatortest.Eventually(t, "they are counted three times more", func() bool { return s.Calls()["CountEntries"] > counts+3 })
			}
			if n := s.Calls()["ListEntries"]; n != lists {
				t.Errorf("all are listed %d times more, and nothing has changed", n-lists)
			}
			if countsAll {
				return
			}
			s.Wipe()
			operatortest.Eventually(t, "what was lost is there again", func() bool { return s.Len() == 2 })
		})
	}
}

// ZT-8 and ZT-11: two duties at one server, over one connection. Neither touches the entries of the other, whatever fails.
func TestTwoDuties(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	connection := connect(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	tree := health.NewTree()
	start := func(id string, k Kind[string], wanted ...string) (*Registrar[string], *paths) {
		r, p := newPaths(connection, tree, id, k, wanted...)
		running.Go(func() { _ = r.Run(ctx) })
		return r, p
	}
	want := func(paths ...string) {
		t.Helper()
		operatortest.Eventually(t, "the entries are those of "+strings.Join(paths, " "), func() bool {
			entries := s.Entries()
			for _, path := range paths {
				delete(entries, path)
			}
			return len(entries) == 0 && s.Len() == len(paths)
		})
	}
	first, firsts := start("first", kindOf("/first", "/a/"), "/a/1", "/a/2")
	second, seconds := start("second", kindOf("/second", "/b/"), "/b/1", "/b/2")
	want("/a/1", "/a/2", "/b/1", "/b/2")
	firsts.set("/a/1", false)
	first.Enqueue(k8s.Trigger{}, "/a/1")
	want("/a/2", "/b/1", "/b/2")
	s.Refuse("/a/3", codes.Internal)
	firsts.set("/a/3", true)
	first.Enqueue(k8s.Trigger{}, "/a/3")
	operatortest.Eventually(t, "the first is degraded", func() bool { return len(tree.Degraded()) > 0 })
	seconds.set("/b/1", false)
	seconds.set("/b/3", true)
	second.Enqueue(k8s.Trigger{}, "/b/1", "/b/3")
	want("/a/2", "/b/2", "/b/3")
	for _, d := range tree.Degraded() {
		if !strings.HasPrefix(d.ID, "first.") {
			t.Errorf("%s is degraded: %s", d.ID, d.Message)
		}
	}
	address := s.Address()
	s.Stop()
	s.Wipe()
	s.Refuse("/a/3", codes.OK)
	first.Enqueue(k8s.Trigger{}, "/a/3")
	seconds.set("/b/4", true)
	second.Enqueue(k8s.Trigger{}, "/b/4")
	operatortest.Eventually(t, "both are degraded", func() bool {
		found := map[string]bool{}
		for _, d := range tree.Degraded() {
			id, _, _ := strings.Cut(d.ID, ".")
			found[id] = true
		}
		return len(found) == 2
	})
	s.Listen(address)
	want("/a/2", "/a/3", "/b/2", "/b/3", "/b/4")
	s.Stop() // unnoticed: no call fails meanwhile
	s.Wipe()
	s.Listen(address)
	firsts.set("/a/4", true)
	first.Enqueue(k8s.Trigger{}, "/a/4")
	want("/a/2", "/a/3", "/a/4")
	seconds.set("/b/5", true)
	second.Enqueue(k8s.Trigger{}, "/b/5")
	want("/a/2", "/a/3", "/a/4", "/b/2", "/b/3", "/b/4", "/b/5")
	if serials := s.Serials(); len(serials) != 1 {
		t.Errorf("clients had the certificates %v", serials)
	}
}
