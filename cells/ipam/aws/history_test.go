// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// Over any history of lost answers, refusals, stale descriptions, attachments that take their time, crashes and two leaders,
// the provider shows no address of another instance, unassigns no address that is used, and leaves no interface once
// garbage was collected. The SDK and EC2's protocol are real. A history is drawn from its seed. AWS-7, AWS-19, AWS-22.
func TestHistories(t *testing.T) {
	total := map[string]int{}
	c := &switched{}
	front := newFront(t, c)
	serve(t, ec2test.New()) // for all but EC2
	setenv(t, "AWS_ENDPOINT_URL_EC2", front)
	for seed := range seedtest.Seeds(t, 600) {
		h := newHistory(t, c, seed)
		h.run()
		for what, n := range h.tally {
			total[what] += n
		}
	}
	t.Log(total)
	if os.Getenv("SKEP_SEED") != "" || t.Failed() {
		return
	}
	for _, what := range []string{"refused", "lost", "stuck", "leader", "assigned", "created", "unassigned", "prefixes unassigned", "collected", "left behind", "terminated", "converged"} {
		if total[what] == 0 {
			t.Errorf("the histories leave something out: %s", what)
		}
	}
}

// switched serves one cloud after the other.
type switched struct {
	mu     sync.Mutex
	active sync.RWMutex // read-locked by requests
	http.Handler
}

// wait returns when no request is served. One outlives its call if the answer is lost, or the fence closes.
func (s *switched) wait() {
	s.active.Lock()
	defer s.active.Unlock()
}

func (s *switched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.active.RLock()
	defer s.active.RUnlock()
	s.mu.Lock()
	h := s.Handler
	s.mu.Unlock()
	h.ServeHTTP(w, r)
}

// lag is how old descriptions may be, by the clock of the cloud. That goes on with each request, so that a history is the same on
// a fast machine. What a step changes may not be shown in it, and is shown in the next: an address may be assigned again then.
const lag = 2 * time.Millisecond

// settles lets the descriptions show what is so.
func (h *history) settles() { h.clock.Add(int64(2 * lag)) }

type history struct {
	t       *testing.T
	seed    uint64
	r       *rand.Rand
	ec2     *ec2test.Cloud
	clock   atomic.Int64 // of the cloud, in nanoseconds
	server  *switched
	leaders []*leader // the last one leads, the others are behind their fences
	ids     []string  // of instances
	next    int       // number of the next instance: EC2 uses no id again
	used    map[string]string
	config  Config
	quiet   bool
	tally   map[string]int
	steps   []string
}

type leader struct {
	p     *provider
	fence *leading.Fence
	state *cloudipam.State
}

func newHistory(t *testing.T, s *switched, seed uint64) *history {
	h := &history{
		t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 7)), ec2: region("m5.large", "i-0", "i-1", "i-2"), config: Config{AWSEnablePrefixDelegation: seed%2 == 1}, //nolint:gosec // no secret
		server: s, ids: []string{"i-0", "i-1", "i-2"}, next: 3, used: map[string]string{}, tally: map[string]int{},
	}
	if h.config.AWSEnablePrefixDelegation {
		h.ec2.Empty("subnet-a") // which has prefixes then
	}
	h.ec2.Lag = lag
	h.ec2.Now = func() time.Time { return time.Unix(0, h.clock.Add(int64(lag/16))) }
	h.ec2.Fault = h.fault
	s.mu.Lock()
	s.Handler = h.ec2
	s.mu.Unlock()
	return h
}

func (h *history) fault(operation string, parameters map[string]string) (f ec2test.Fault) {
	if operation == "UnassignPrivateIpAddresses" {
		for name, a := range parameters {
			switch {
			case strings.HasPrefix(name, "PrivateIpAddress.") && h.used[a] != "":
				h.fail("%s is unassigned, and used on %s", a, h.used[a])
			case strings.HasPrefix(name, "Ipv4Prefix."):
				for _, of := range addressesOf(a) {
					if h.used[of] != "" {
						h.fail("%s is unassigned, and %s is used on %s", a, of, h.used[of])
					}
				}
				h.tally["prefixes unassigned"]++
			}
		}
	}
	changes := !strings.HasPrefix(operation, "Describe")
	switch k := h.r.IntN(100); {
	case h.quiet:
	case k < 6:
		f.Refuse = &ec2test.Error{Status: http.StatusInternalServerError, Code: "InternalError", Message: "An internal error has occurred"}
		h.tally["refused"]++
	case k < 14 && changes:
		f.Lose = true
		h.tally["lost"]++
	case k < 22 && operation == "AttachNetworkInterface":
		f.Stuck = true
		h.tally["stuck"]++
	case k < 25 && changes:
		h.leaders[len(h.leaders)-1].fence.Close() // in the middle of a change
	}
	return f
}

func (h *history) fail(format string, args ...any) {
	h.t.Errorf("SKEP_SEED=%d: %s\n%s", h.seed, fmt.Sprintf(format, args...), strings.Join(h.steps[max(0, len(h.steps)-30):], "\n"))
}

// logf is called after each call of the provider.
func (h *history) logf(format string, args ...any) {
	h.server.wait()
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}

// lead starts a leader, which knows nothing.
func (h *history) lead() {
	h.tally["leader"]++
	for _, l := range h.leaders {
		l.fence.Close()
	}
	fence := leading.Unfenced()
	scope := scopeOf(fence)
	door := outside.New(scope, "ec2", outside.Limits{QPS: 1e9, Burst: 1e9})
	last := max(0, len(h.leaders)-1)
	h.end(h.leaders[:last])
	h.leaders = append(h.leaders[last:], &leader{p: providerOf(h.t, h.config, door), fence: fence})
	h.logf("another leader")
}

// end closes the connections of leaders: there are thousands of them.
func (h *history) end(leaders []*leader) {
	for _, l := range leaders {
		l.fence.Close()
		_ = l.p.session.connections().Stop(h.t.Context())
	}
}

func (h *history) ctx() context.Context {
	return explain.WithCause(h.t.Context(), &explain.Cause{Rule: "ipam.aws allocate"})
}

func (h *history) run() {
	defer func() { h.end(h.leaders) }()
	h.lead()
	for range 25 {
		h.settles()
		if h.step(); h.t.Failed() {
			return
		}
	}
	h.converge()
}

func (h *history) step() {
	l := h.leaders[h.r.IntN(len(h.leaders))]
	at := h.r.IntN(len(h.ids))
	id := h.ids[at]
	n := nodeOf(id, nil)
	switch k := h.r.IntN(20); {
	case k < 1 || l.fence.Check() != nil && l == h.leaders[len(h.leaders)-1]:
		h.lead()
	case k < 5 || l.state == nil:
		state, err := l.p.Read(h.ctx())
		h.logf("read: %v", err)
		if err == nil {
			l.state = state
			h.check(l, state.Instances)
		}
	case l.state.Instances[id] == nil:
	case k < 9:
		h.refresh(l, id)
	case k < 12:
		if to, ok := l.p.FreeInterface(n, l.state.Instances[id], l.state.Subnets); ok {
			err := l.p.Assign(h.ctx(), n, l.state.Instances[id], to, 1+h.r.IntN(to.Count))
			h.count("assigned", err)
			h.refresh(l, id)
		}
	case k < 15:
		i := l.state.Instances[id]
		if limits, err := l.p.Limits(n, i); err != nil || limits.EmptySlots == 0 {
			return
		}
		_, err := l.p.CreateInterface(h.ctx(), n, i, l.state.Subnets, 1+h.r.IntN(9*h.unit()))
		h.count("created", err)
		h.refresh(l, id)
	case k < 17:
		surplus := l.p.Releasable(n, l.state.Instances[id], func(a string) bool { return h.used[a] != "" }, 3*h.unit())
		if len(surplus.Addresses)+len(surplus.Prefixes) > 0 {
			h.count("unassigned", l.p.Unassign(h.ctx(), n, l.state.Instances[id], surplus))
			h.refresh(l, id)
		}
	case k < 18: // an agent uses what the instance has
		for _, i := range h.ec2.Interfaces() {
			for _, p := range i.Prefixes {
				i.Addresses = append(i.Addresses, addressesOf(p)...)
			}
			if i.Instance == id && len(i.Addresses) > 0 && len(h.used) < 6 {
				h.used[i.Addresses[0]] = id
			}
		}
	case k < 19:
		h.collect(l)
	default:
		h.tally["terminated"]++
		h.logf("%s is terminated", id)
		h.ec2.Terminate(id)
		h.settles() // its addresses may be assigned again at once
		maps.DeleteFunc(h.used, func(_, of string) bool { return of == id })
		h.ids[at] = fmt.Sprintf("i-%d", h.next)
		h.next++
		if err := h.ec2.Run(h.ids[at], "m5.large", "subnet-a", nil); err != nil {
			h.fail("%v", err)
		}
	}
}

// unit is how many addresses are asked for at least where there are prefixes.
func (h *history) unit() int {
	if h.config.AWSEnablePrefixDelegation {
		return prefixSize
	}
	return 1
}

func (h *history) count(what string, err error) {
	h.logf("%s: %v", what, err)
	if err == nil {
		h.tally[what]++
	}
}

func (h *history) refresh(l *leader, id string) {
	some, err := l.p.ReadInstances(h.ctx(), []string{id})
	h.logf("read of %s: %v", id, err)
	if err == nil {
		l.state.Instances[id] = some[id]
		h.check(l, some)
	}
}

// check compares what the provider of a leader shows with what the cloud has. Behind its fence it writes nothing of it anywhere,
// and does not know what the next leader has unassigned.
func (h *history) check(l *leader, instances map[string]*cloudipam.Instance) {
	if l.fence.Check() != nil {
		return
	}
	owners := h.ec2.Owners()
	for id, i := range instances {
		if i == nil {
			continue
		}
		for a, at := range (&provider{}).Addresses(nodeOf(id, nil), i) {
			if of := owners[cmp.Or(at.Prefix, a)]; of != "" && of != id {
				h.fail("%s is shown on %s, and is of %s", a, id, of)
			}
		}
	}
}

// collect runs the garbage collection of a leader.
func (h *history) collect(l *leader) {
	before := len(h.ec2.Interfaces())
	l.p.session.Config.ENIGCInterval = time.Minute
	h.logf("garbage: %v", l.p.upkeep.collect(h.ctx()))
	h.tally["collected"] += before - len(h.ec2.Interfaces())
}

// converge ends all faults: then nothing is left behind, and the provider shows what the cloud has.
func (h *history) converge() {
	h.tally["left behind"] += h.unattached()
	h.quiet = true
	h.lead()
	l := h.leaders[len(h.leaders)-1]
	h.settles()
	for range 5 { // one may fail by the end of a connection
		h.collect(l)
		h.settles()
	}
	if n := h.unattached(); n > 0 {
		h.fail("%d interfaces are left behind", n)
	}
	var state *cloudipam.State
	for range 3 {
		var err error
		if state, err = l.p.Read(h.ctx()); err == nil {
			break
		}
		h.logf("last read: %v", err)
	}
	if state == nil {
		h.fail("reads fail without a fault")
		return
	}
	has, shows := map[string]string{}, map[string]string{}
	for id, i := range state.Instances {
		for a, at := range l.p.Addresses(nodeOf(id, nil), i) {
			has[cmp.Or(at.Prefix, a)], shows[a] = id, id
		}
	}
	if owners := h.ec2.Owners(); !maps.Equal(has, owners) {
		h.fail("it shows %v, and the cloud has %v", has, owners)
	}
	for a, id := range h.used {
		if shows[a] != id {
			h.fail("%s is used on %s, and is of %q", a, id, shows[a])
		}
	}
	h.tally["converged"]++
}

// unattached are the interfaces that nothing uses.
func (h *history) unattached() (n int) {
	return len(slices.DeleteFunc(h.ec2.Interfaces(), func(i ec2test.Interface) bool { return i.Instance != "" }))
}
