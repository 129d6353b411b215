// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/clustertest/control"
	"github.com/skep-operator/skep/runtime/waittest"
)

// The shapes of faults, so that tests need one import.
type (
	Rule       = control.Rule
	Match      = control.Match
	Status     = control.Status
	Delay      = control.Delay
	LoseAnswer = control.LoseAnswer
	CutWatch   = control.CutWatch
	Spoil      = control.Spoil
	HoldWatch  = control.HoldWatch
	Link       = control.Link
	Direction  = control.Direction
	Request    = control.Request
)

// Proxy is a front door of the API server or of an etcd member that can be
// broken. What breaks one does not touch another.
type Proxy struct {
	id         string
	address    string
	kubeconfig string
	process    *process
}

// Proxy is the front door of the API server that every cluster has.
func (c *Cluster) Proxy() *Proxy {
	info := c.process.info
	return &Proxy{control.BackendAPIServer, info.ProxyAddress, info.ProxyKubeconfig, c.process}
}

// NewProxy opens another front door of the API server until the test ends. With
// a link it starts broken: Link{Refuse: true} is an API server that comes later.
func (c *Cluster) NewProxy(tb testing.TB, link ...Link) *Proxy {
	tb.Helper()
	return newProxy(tb, c.process, control.NewProxy{Backend: control.BackendAPIServer}, link)
}

// NewSeededProxy is NewProxy with a seed of all that is random in its rules: the
// same requests in the same order meet the same faults.
func (c *Cluster) NewSeededProxy(tb testing.TB, seed uint64, link ...Link) *Proxy {
	tb.Helper()
	return newProxy(tb, c.process, control.NewProxy{Backend: control.BackendAPIServer, Seed: seed}, link)
}

func newProxy(tb testing.TB, process *process, ask control.NewProxy, link []Link) *Proxy {
	tb.Helper()
	if len(link) > 0 {
		ask.Link = link[0]
	}
	var opened control.Proxy
	must(tb, func(ctx context.Context) (err error) {
		opened, err = process.control.NewProxy(ctx, ask)
		return err
	})
	tb.Cleanup(func() {
		ctx, cancel := call()
		defer cancel()
		if err := process.control.CloseProxy(ctx, opened.ID); err != nil {
			tb.Error(err)
		}
	})
	return &Proxy{opened.ID, opened.Address, opened.Kubeconfig, process}
}

// Address is host:port.
func (p *Proxy) Address() string { return p.address }

// Kubeconfig is the path of the administrator's kubeconfig through this door.
// It is empty for an etcd member.
func (p *Proxy) Kubeconfig() string { return p.kubeconfig }

// AdminConfig is the administrator's way through this door. The client's own
// rate limit is off.
func (p *Proxy) AdminConfig(tb testing.TB) *rest.Config {
	tb.Helper()
	return config(tb, p.kubeconfig)
}

// UserKubeconfig is as Cluster.UserKubeconfig, through this door.
func (p *Proxy) UserKubeconfig(tb testing.TB, user string, groups ...string) string {
	tb.Helper()
	return (&Cluster{p.process}).kubeconfig(tb, control.Kubeconfig{User: user, Groups: groups, Proxy: p.id})
}

// ServiceAccountKubeconfig is as Cluster.ServiceAccountKubeconfig, through this
// door.
func (p *Proxy) ServiceAccountKubeconfig(tb testing.TB, namespace, name string) string {
	tb.Helper()
	return (&Cluster{p.process}).kubeconfig(tb, control.Kubeconfig{ServiceAccount: namespace + "/" + name, Proxy: p.id})
}

// State asks for the proxy's link and counters.
func (p *Proxy) State(tb testing.TB) (state control.Proxy) {
	tb.Helper()
	must(tb, func(ctx context.Context) (err error) {
		state, err = p.process.control.Proxy(ctx, p.id)
		return err
	})
	return state
}

// SetLink replaces the state of the TCP side, for open and new connections.
func (p *Proxy) SetLink(tb testing.TB, link Link) {
	tb.Helper()
	p.healWith(tb)
	must(tb, func(ctx context.Context) error { return p.process.control.SetLink(ctx, p.id, link) })
}

// BlackHole keeps connections, new ones included, and moves no byte.
func (p *Proxy) BlackHole(tb testing.TB) {
	tb.Helper()
	p.SetLink(tb, Link{Up: Direction{BlackHole: true}, Down: Direction{BlackHole: true}})
}

// Delay gives each byte a latency on its way to the server and to the client.
func (p *Proxy) Delay(tb testing.TB, up, down time.Duration) {
	tb.Helper()
	p.SetLink(tb, Link{Up: Direction{Delay: up}, Down: Direction{Delay: down}})
}

// Refuse refuses new connections. Open ones live on: see Cut.
func (p *Proxy) Refuse(tb testing.TB) {
	tb.Helper()
	p.SetLink(tb, Link{Refuse: true})
}

// Cut resets all open connections and says how many there were.
func (p *Proxy) Cut(tb testing.TB) (n int) {
	tb.Helper()
	must(tb, func(ctx context.Context) (err error) {
		n, err = p.process.control.Cut(ctx, p.id, control.CutConnections{})
		return err
	})
	return n
}

// Heal takes every fault back: the state of the link and all rules. What was
// held back is delivered.
func (p *Proxy) Heal(tb testing.TB) {
	tb.Helper()
	must(tb, func(ctx context.Context) error { return p.process.control.Heal(ctx, p.id) })
}

// healWith heals the proxy when the test ends, if it is still there.
func (p *Proxy) healWith(tb testing.TB) {
	tb.Cleanup(func() {
		ctx, cancel := call()
		defer cancel()
		_ = p.process.control.Heal(ctx, p.id)
	})
}

// ActiveRule is a rule at work.
type ActiveRule struct {
	proxy *Proxy
	id    string
}

// Rule adds a rule behind those that exist, until the test ends.
func (p *Proxy) Rule(tb testing.TB, rule Rule) *ActiveRule {
	tb.Helper()
	p.healWith(tb)
	must(tb, func(ctx context.Context) (err error) {
		rule, err = p.process.control.AddRule(ctx, p.id, rule)
		return err
	})
	return &ActiveRule{p, rule.ID}
}

// Remove takes the rule back; what it holds is released.
func (r *ActiveRule) Remove(tb testing.TB) {
	tb.Helper()
	must(tb, func(ctx context.Context) error { return r.proxy.process.control.RemoveRule(ctx, r.proxy.id, r.id) })
}

// Hits is how often the rule fired.
func (r *ActiveRule) Hits(tb testing.TB) int {
	tb.Helper()
	var rules []Rule
	must(tb, func(ctx context.Context) (err error) {
		rules, err = r.proxy.process.control.Rules(ctx, r.proxy.id)
		return err
	})
	for _, rule := range rules {
		if rule.ID == r.id {
			return rule.Hits
		}
	}
	tb.Fatalf("rule %s is not there any more", r.id)
	return 0
}

// Answer answers matching requests with a status code in the server's place.
func (p *Proxy) Answer(tb testing.TB, code int, match Match) *ActiveRule {
	tb.Helper()
	return p.Rule(tb, Rule{Match: match, Status: &Status{Code: code}})
}

// Spoil gives matching requests answers that no API server gives in that place, of these
// kinds in turn, or of all: once the server has done what it was asked for, and in its
// place. A Rule says more.
func (p *Proxy) Spoil(tb testing.TB, match Match, answers ...control.SpoiltAnswer) *ActiveRule {
	tb.Helper()
	return p.Rule(tb, Rule{Match: match, Spoil: &Spoil{Answers: answers}})
}

// CutWatches ends the matching watches that are open now, cleanly and between
// two events, and says how many there were.
func (p *Proxy) CutWatches(tb testing.TB, match Match) (n int) {
	tb.Helper()
	must(tb, func(ctx context.Context) (err error) {
		n, err = p.process.control.CutWatches(ctx, p.id, control.CutWatches{Match: match})
		return err
	})
	return n
}

// ExpireWatches is as CutWatches, with an event that says 410 Gone.
func (p *Proxy) ExpireWatches(tb testing.TB, match Match) (n int) {
	tb.Helper()
	must(tb, func(ctx context.Context) (err error) {
		n, err = p.process.control.CutWatches(ctx, p.id, control.CutWatches{Match: match, How: CutWatch{Expire: true}})
		return err
	})
	return n
}

// CutWatchesEvery breaks each watch at a random time of its life, at the latest
// after the given one, again and again.
func (p *Proxy) CutWatchesEvery(tb testing.TB, every time.Duration, match Match) *ActiveRule {
	tb.Helper()
	return p.Rule(tb, Rule{Match: match, CutWatch: &CutWatch{After: every / 10, Jitter: every - every/10, Abrupt: true}})
}

// HoldWatch delivers the events of a resource's watches late and in order, while
// everything else flows: a stale cache. 0 holds them until the rule is removed.
func (p *Proxy) HoldWatch(tb testing.TB, resource string, late time.Duration) *ActiveRule {
	tb.Helper()
	return p.Rule(tb, Rule{Match: Match{Resources: []string{resource}}, HoldWatch: &HoldWatch{For: late}})
}

// Requests lists what came through the door after the request numbered after,
// oldest first; 0 means from the start. A test that comes so late that requests
// are forgotten fails.
func (p *Proxy) Requests(tb testing.TB, after int64) (requests []Request) {
	tb.Helper()
	must(tb, func(ctx context.Context) (err error) {
		requests, err = p.process.control.Requests(ctx, p.id, after)
		return err
	})
	if len(requests) > 0 && requests[0].Seq != after+1 {
		tb.Fatalf("proxy %s has forgotten the requests %d to %d: ask more often", p.id, after+1, requests[0].Seq-1)
	}
	return requests
}

// Answered is Requests once all of them but watches have been answered: what a client has written can be seen before its answer
// has passed.
func (p *Proxy) Answered(tb testing.TB, after int64) (requests []Request) {
	tb.Helper()
	waittest.Until(tb, "all requests are answered", func() bool {
		requests = p.Requests(tb, after)
		return !slices.ContainsFunc(requests, func(r Request) bool { return r.Status == 0 && r.Verb != "watch" })
	})
	return requests
}
