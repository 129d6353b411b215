// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/seedtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// No CIDR is given twice, over any history of crashes, stale caches and two
// leaders: here with real processes and a real API server, whose watch of all
// changes is the judge. The same in a model, thousands of times, is in
// cells/ipam/clusterpool.
func TestInvariant4NoDoubleAllocation(t *testing.T) {
	t.Run("crash at every write", crashAtEveryWrite)
	t.Run("any history", anyHistory)
}

// smallPool are so few blocks that they are used again soon.
var smallPool = []string{"--cluster-pool-ipv4-cidr=10.0.0.0/27", "--cluster-pool-ipv4-mask-size=30"}

const smallPoolBlocks = 8

// crashLease is one that is taken soon after a crash, and is not lost because the
// machine has other things to do.
var crashLease = []string{
	"--leader-election-lease-duration=6s", "--leader-election-renew-deadline=5s", "--leader-election-retry-period=100ms",
}

// operator runs an operator with a small pool.
func (w *world) operator(user string, lease []string) (*operator, *clustertest.Proxy) {
	w.t.Helper()
	proxy := w.NewProxy(w.t)
	args := slices.Concat([]string{"--k8s-namespace=" + w.namespace, "--enable-ipv6=false"}, lease, smallPool)
	return start(w.t, proxy.UserKubeconfig(w.t, user, "system:masters"), nil, args...), proxy
}

// crashAtEveryWrite kills the leader when the answer to its n-th write is lost, of
// CIDRs or of an error, for every n; and once it ends in order. Who takes over has
// seen what the writes were about, and none of them.
func crashAtEveryWrite(t *testing.T) {
	w := newWorld(t)
	judge := newJudge(w)
	leader, proxy := w.operator("first", crashLease)
	leader.leads()
	rounds := 1
	if seedtest.Soak() {
		rounds = 10
	}
	const freed = 2
	for i := range rounds * (2*freed + 1) {
		n := i % (2*freed + 1)
		t.Logf("write %d", n)
		for name := range w.nodes() {
			w.deleteNodes(name)
		}
		leader.sees(0)
		for i := range smallPoolBlocks {
			w.served(fmt.Sprint("old-", i))
		}
		starving := w.addAgainstTheirNames("wait-", 3*freed)
		w.settled()
		standby, next := w.operator(fmt.Sprint("next-", i), crashLease)
		standby.says("standing by", 1)
		standby.sees(smallPoolBlocks + starving)

		// The leader is the last one to see what makes it write.
		late := proxy.HoldWatch(t, "ciliumnodes", 0)
		for i := range freed {
			w.deleteNodes(fmt.Sprint("old-", i))
		}
		standby.sees(smallPoolBlocks + starving - freed)
		held := next.HoldWatch(t, "ciliumnodes", 0)
		if n == 2*freed {
			late.Remove(t)
			eventually(t, "the leader has written", func() bool { return w.starving() == starving-freed })
			if code := leader.stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		} else {
			lost := proxy.Rule(t, clustertest.Rule{Match: nodeWrites, LoseAnswer: &clustertest.LoseAnswer{}, Skip: n, Times: 1})
			late.Remove(t)
			eventually(t, "an answer is lost", func() bool { return lost.Hits(t) > 0 })
			leader.kill()
		}
		standby.says("level=info msg=leading ", 1)
		// It must not decide by what it has seen. A rash one has the time to do so.
		for began := time.Now(); time.Since(began) < time.Second && standby.log.Count("caches synced, allocating pod CIDRs") == 0; {
			time.Sleep(10 * time.Millisecond) // between looks
		}
		held.Remove(t)
		standby.leads()
		w.deleteNodes("old-6", "old-7", "wait-0", "wait-1", "wait-2", "wait-3", "wait-4", "wait-5")
		w.served("sentinel")
		leader, proxy = standby, next
	}
	judge.finish()
}

var nodeWrites = clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumnodes", "ciliumnodes/status"}}

// addAgainstTheirNames creates nodes in the same second, the last name first: an operator
// that did not watch them being created allocates in another order.
func (w *world) addAgainstTheirNames(prefix string, n int) int {
	w.t.Helper()
	eventually(w.t, "nodes of the same second", func() bool {
		for i := range n {
			w.addNode(fmt.Sprint(prefix, n-1-i))
		}
		nodes := w.nodes()
		first, last := nodes[fmt.Sprint(prefix, n-1)], nodes[prefix+"0"]
		if first.GetCreationTimestamp() == last.GetCreationTimestamp() {
			return true
		}
		for i := range n {
			w.deleteNodes(fmt.Sprint(prefix, i))
		}
		return false
	})
	return n
}

// starving is how many nodes have no CIDR.
func (w *world) starving() (n int) {
	w.t.Helper()
	for _, node := range w.nodes() {
		if len(podCIDRs(node)) == 0 {
			n++
		}
	}
	return n
}

// sees waits until the operator's view has so many nodes.
func (o *operator) sees(nodes int) {
	o.t.Helper()
	var row []string
	defer func() {
		if o.t.Failed() {
			o.t.Logf("not %d nodes but %v", nodes, row)
		}
	}()
	o.until(fmt.Sprintf("it sees %d nodes", nodes), func() bool {
		row = o.stream("ciliumnodes")
		return len(row) > 2 && row[1] == strconv.Itoa(nodes) && row[2] != "waiting"
	})
}

// stream is the line of a stream in the operator's status: its name, how many
// objects it has, and its state.
func (o *operator) stream(name string) []string {
	for _, section := range o.sections() {
		for _, row := range section.Rows {
			if section.Title == "Streams" && strings.HasPrefix(row[0], name) {
				return row
			}
		}
	}
	return nil
}

// synced reports whether all streams are.
func (o *operator) synced() bool {
	for _, section := range o.sections() {
		if section.Title == "Streams" {
			return !slices.ContainsFunc(section.Rows, func(row []string) bool { return len(row) > 2 && row[2] == "waiting" })
		}
	}
	return false
}

type section struct {
	Title string
	Rows  [][]string
}

// sections are what modules add to the operator's status; none while it does not
// answer.
func (o *operator) sections() []section {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", o.socket)
		},
	}}
	resp, err := client.Get("http://operator/status")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var s struct{ Sections []section }
	_ = json.NewDecoder(resp.Body).Decode(&s)
	return s.Sections
}

// anyHistory lets two operators with late caches lead in turn, and does to them
// what can be done, while nodes come and go.
func anyHistory(t *testing.T) {
	length := 20 * time.Second
	if seedtest.Soak() {
		length = 10 * time.Minute
	}
	seed := seedtest.Seed(t)
	w := newWorld(t)
	judge := newJudge(w)
	r := rand.New(rand.NewPCG(seed, 1))
	operator := func(user string) (*operator, *clustertest.Proxy) { return w.operator(user, quickLease) }
	h := newHistory(w, r, operator, nodeWrites, "ciliumnodes")
	h.replicas[0].until("somebody leads", func() bool { return h.leader() >= 0 })
	ctx, stop := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	churn.Go(func() { w.churn(ctx, rand.New(rand.NewPCG(seed, 2))) })
	enough := func() bool { return judge.usedAgain() > 0 }
	for began := time.Now(); h.goesOn(began, length, enough); {
		h.harm()
		// A replica leads again, and has allocated.
		eventually(t, "somebody leads", func() bool { return h.leader() >= 0 })
		given := judge.given()
		eventually(t, "blocks are given", func() bool { return judge.given() > given })
	}
	stop()
	churn.Wait()
	w.settled()
	t.Logf("harm done: %v; %s", h.done, judge.finish())
	if judge.usedAgain() == 0 {
		t.Error("no block was used again: the history shows nothing")
	}
}

// history is two operators and what has been done to them.
type history struct {
	*world
	r        *rand.Rand
	operator func(user string) (*operator, *clustertest.Proxy)
	writes   clustertest.Match // whose answers are lost
	late     []string          // the streams that lag behind
	replicas [2]*operator
	proxies  [2]*clustertest.Proxy
	began    int
	done     map[string]int
}

// newHistory begins with both operators running.
func newHistory(w *world, r *rand.Rand, operator func(string) (*operator, *clustertest.Proxy), writes clustertest.Match, late ...string) *history {
	h := &history{world: w, r: r, operator: operator, writes: writes, late: late, done: map[string]int{}}
	for i := range h.replicas {
		h.begin(i)
	}
	return h
}

func (h *history) begin(i int) {
	h.began++
	h.replicas[i], h.proxies[i] = h.operator(fmt.Sprint("replica-", h.began))
	for _, resource := range h.late {
		h.proxies[i].HoldWatch(h.t, resource, time.Duration(50+h.r.IntN(600))*time.Millisecond)
	}
}

// goesOn reports whether more harm is to be done: for a time, and for as long as the history shows nothing.
func (h *history) goesOn(began time.Time, length time.Duration, enough func() bool) bool {
	passed := time.Since(began)
	return !h.t.Failed() && (passed < length || !enough() && passed < length+waittest.Limit)
}

// leader is the replica that leads, or -1.
func (h *history) leader() int {
	return slices.IndexFunc(h.replicas[:], func(o *operator) bool {
		s, ok := o.status()
		return ok && s.Election.Leading
	})
}

// harm does something to the leader.
func (h *history) harm() {
	i := h.leader()
	if i < 0 {
		return
	}
	o, proxy := h.replicas[i], h.proxies[i]
	switch kind := []string{"hand over", "hand over", "kill", "pause", "lost answers", "lies", "cut", "black hole"}[h.r.IntN(8)]; kind {
	case "hand over":
		h.done[kind]++
		if code := o.stop(); code != 0 {
			h.t.Errorf("exit code %d", code)
		}
		h.begin(i)
	case "kill":
		h.done[kind]++
		rule := proxy.Rule(h.t, clustertest.Rule{Match: h.writes, LoseAnswer: &clustertest.LoseAnswer{}, Skip: h.r.IntN(4), Times: 1})
		eventually(h.t, "an answer is lost", func() bool { return rule.Hits(h.t) > 0 || h.leader() != i })
		o.kill()
		h.begin(i)
	case "pause":
		h.done[kind]++
		o.signal(syscall.SIGSTOP)
		eventually(h.t, "another one leads", func() bool { return h.leads(1 - i) })
		o.signal(syscall.SIGCONT)
	case "lost answers":
		h.done[kind]++
		rule := proxy.Rule(h.t, clustertest.Rule{Match: h.writes, LoseAnswer: &clustertest.LoseAnswer{Connection: true}, Times: 3})
		eventually(h.t, "answers are lost", func() bool { return rule.Hits(h.t) > 0 || h.leader() != i })
		if code := o.stop(); code != 0 {
			h.t.Errorf("exit code %d", code)
		}
		h.begin(i)
	case "lies":
		h.done[kind]++
		rule := proxy.Rule(h.t, clustertest.Rule{Match: h.writes, Spoil: &clustertest.Spoil{Answers: lies()}, Times: 6})
		eventually(h.t, "answers lie", func() bool { return rule.Hits(h.t) >= 6 || h.leader() != i })
	case "cut":
		h.done[kind]++
		proxy.Cut(h.t)
	case "black hole":
		h.done[kind]++
		link := proxy.State(h.t).Link
		proxy.BlackHole(h.t)
		eventually(h.t, "another one leads", func() bool { return h.leads(1 - i) })
		proxy.SetLink(h.t, link)
	}
}

func (h *history) leads(i int) bool {
	s, ok := h.replicas[i].status()
	return ok && s.Election.Leading
}

// churn makes and deletes nodes until ctx ends, one or two more than there are
// blocks.
func (w *world) churn(ctx context.Context, r *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		if nodes := w.nodes(); len(nodes) >= smallPoolBlocks+1+r.IntN(2) {
			for name := range nodes { // in whatever order
				w.deleteNodes(name)
				if r.IntN(3) > 0 {
					break
				}
			}
		}
		w.addNode(fmt.Sprint("node-", i))
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(r.IntN(150)) * time.Millisecond): // a pace, not a wait
		}
	}
}

func (w *world) deleteNodes(names ...string) {
	w.t.Helper()
	for _, name := range names {
		err := w.dynamic.Resource(v2.CiliumNodeResource).Delete(context.WithoutCancel(w.t.Context()), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.t.Errorf("deleting node %s: %v", name, err)
		}
	}
}

// judge sees every change of every node, in order, and knows nothing of pools.
type judge struct {
	w *world

	mu       sync.Mutex
	nodes    map[string][]netip.Prefix
	had      map[netip.Prefix]string // who had a block last
	changes  int
	gave     int
	reused   int
	revision uint64
	history  []string
}

func newJudge(w *world) *judge {
	w.t.Helper()
	w.define("CiliumNode")
	j := &judge{w: w, nodes: map[string][]netip.Prefix{}, had: map[netip.Prefix]string{}}
	w.witness(v2.CiliumNodeResource, j.see)
	return j
}

func (j *judge) see(kind watch.EventType, node *unstructured.Unstructured) {
	j.mu.Lock()
	defer j.mu.Unlock()
	name := node.GetName()
	j.changes++
	j.revision = revisionOf(node)
	j.history = append(j.history, fmt.Sprintf("%s %s %s %v %q", node.GetResourceVersion(), kind, name, podCIDRs(node), nodeError(node)))
	if kind == watch.Deleted {
		delete(j.nodes, name)
		return
	}
	before := j.nodes[name]
	var has []netip.Prefix
	for _, text := range podCIDRs(node) {
		has = append(has, netip.MustParsePrefix(text))
	}
	j.nodes[name] = has
	for _, p := range has {
		if slices.Contains(before, p) {
			continue
		}
		j.gave++
		if j.had[p] != "" {
			j.reused++
		}
		j.had[p] = name
		for other, theirs := range j.nodes {
			if other != name && slices.ContainsFunc(theirs, p.Overlaps) {
				j.w.t.Errorf("revision %s: %s was given to %s, and %s has %v", node.GetResourceVersion(), p, name, other, theirs)
				for _, line := range j.history[max(0, len(j.history)-60):] {
					j.w.t.Log(line)
				}
			}
		}
	}
}

// given is how many blocks have been given.
func (j *judge) given() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.gave
}

// usedAgain is how many blocks have been allocated that another node had before.
func (j *judge) usedAgain() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reused
}

// finish waits until the judge has seen everything, and says how much that was.
func (j *judge) finish() string {
	j.w.t.Helper()
	end, err := j.w.makeNode("the-end")
	if err != nil {
		j.w.t.Fatal(err)
	}
	last := revisionOf(end)
	eventually(j.w.t, "the judge has seen all", func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.revision >= last
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	text := fmt.Sprintf("%d changes, %d blocks given, %d of them used again", j.changes, j.gave, j.reused)
	j.w.t.Log(text)
	return text
}
