// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/ecstest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// Over any history of refusals, lost answers, changes that half succeed, attachments that hang, descriptions that are out of date,
// terminated instances, crashes and other leaders, the provider shows no address of another instance, unassigns no address that is used,
// and leaves no interface but those that it deletes later. The SDK and the protocol are real. ALI-10, ALI-15 to ALI-17, ALI-19.
func TestHistories(t *testing.T) {
	total := map[string]int{}
	for seed := range seedtest.Seeds(t, 120) {
		h := newHistory(t, seed)
		h.run()
		for what, n := range h.tally {
			total[what] += n
		}
		if t.Failed() {
			break
		}
	}
	t.Log(total)
	if os.Getenv("SKEP_SEED") != "" || t.Failed() {
		return
	}
	for _, what := range []string{"refused", "lost", "half", "stuck", "leader", "assigned", "created", "unassigned", "deleted later", "terminated", "converged"} {
		if total[what] == 0 {
			t.Errorf("the histories leave something out: %s", what)
		}
	}
}

type history struct {
	t       *testing.T
	seed    uint64
	r       *rand.Rand // of steps
	chance  *rand.Rand // of faults
	cloud   *ecstest.Cloud
	network network
	leader  *leader
	ids     []string // of instances
	next    int
	used    map[string]string
	later   map[task]*upkeep // what leaders have left for later
	quiet   bool
	lost    bool // the last answer was
	tally   map[string]int
	active  sync.RWMutex // read-locked by requests
}

// wait returns when no request is served. One outlives its call if the answer is lost.
func (h *history) wait() {
	h.active.Lock()
	defer h.active.Unlock()
}

// ServeHTTP serves the cloud.
func (h *history) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.active.RLock()
	defer h.active.RUnlock()
	h.cloud.Handler().ServeHTTP(w, r)
}

type leader struct {
	p     *provider
	state *cloudipam.State
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 31)), chance: rand.New(rand.NewPCG(seed, 32)), //nolint:gosec // no secret
		cloud: region("ecs.large", "i-0", "i-1", "i-2"), ids: []string{"i-0", "i-1", "i-2"}, next: 3, used: map[string]string{}, later: map[task]*upkeep{}, tally: map[string]int{},
	}
	h.cloud.PageSize, h.cloud.Settle, h.cloud.Stale = 1+h.r.IntN(4), h.r.IntN(4), h.r.IntN(6)
	h.cloud.Fault = h.fault
	h.network = serveBy(t, h)
	h.network.poll = 1
	h.leader = h.lead()
	return h
}

func (h *history) fail(format string, args ...any) {
	h.t.Errorf("SKEP_SEED=%d: %s", h.seed, fmt.Sprintf(format, args...))
}

// fault is called with the lock of the cloud.
func (h *history) fault(operation string, parameters map[string]string) (f ecstest.Fault) {
	if operation == "UnassignPrivateIpAddresses" {
		for name, a := range parameters {
			if strings.HasPrefix(name, "PrivateIpAddress.") && h.used[a] != "" {
				h.fail("%s is unassigned, and used on %s", a, h.used[a])
			}
		}
	}
	lost := h.lost
	h.lost = false
	switch k := h.chance.IntN(100); {
	case h.quiet:
	case k < 6:
		f.Status, f.Code = http.StatusServiceUnavailable, "ServiceUnavailable"
		h.tally["refused"]++
	case k < 9:
		f.Status, f.Code = http.StatusForbidden, "Operation.Conflict"
		h.tally["refused"]++
	case k < 16 && isChange(operation) && !lost:
		f.Lose, h.lost = true, true
		h.tally["lost"]++
	case k < 22 && operation == opAssign:
		f.Partial = true
		h.tally["half"]++
	case k < 30 && operation == opAttach:
		f.Stuck = true
		h.tally["stuck"]++
	}
	return f
}

// lead returns a leader, which knows nothing.
func (h *history) lead() *leader {
	h.tally["leader"]++
	p := providerOf(h.t, Config{}, h.network, nil)
	p.upkeep.add = func(t task, _ ...k8s.Trigger) { h.later[t] = p.upkeep }
	return &leader{p: p}
}

func (h *history) ctx() context.Context {
	return explain.WithCause(h.t.Context(), &explain.Cause{Rule: "ipam.alibabacloud history"})
}

func (h *history) run() {
	for range 30 {
		if h.step(); h.t.Failed() {
			return
		}
	}
	h.converge()
}

func (h *history) step() {
	h.wait()
	h.cloud.Show() // what a step changes may not be shown in it, and is shown in the next
	if h.r.IntN(15) == 0 {
		h.leader = h.lead() // another leader
	}
	l, of := h.leader, h.r.IntN(len(h.ids))
	id := h.ids[of]
	n := nodeOf(id, nil)
	call, cancel := context.WithCancel(h.ctx())
	defer cancel()
	if h.r.IntN(12) == 0 {
		cancel() // a crash before the call
	}
	switch k := h.r.IntN(20); {
	case k < 4 || l.state == nil:
		if state, err := l.p.Read(call); err == nil {
			l.state = state
			h.check(l, state.Instances)
		}
	case l.state.Instances[id] == nil || k < 6:
		h.refresh(l, id)
	case k < 10:
		if to, ok := l.p.FreeInterface(n, l.state.Instances[id], l.state.Subnets); ok {
			h.count("assigned", l.p.Assign(call, n, l.state.Instances[id], to, 1+h.r.IntN(min(4, to.Count))))
			h.refresh(l, id)
		}
	case k < 14:
		if limits, err := l.p.Limits(n, l.state.Instances[id]); err == nil && limits.EmptySlots > 0 {
			_, err := l.p.CreateInterface(call, n, l.state.Instances[id], l.state.Subnets, 1+h.r.IntN(9))
			h.count("created", err)
			h.refresh(l, id)
		}
	case k < 17:
		surplus := l.p.Releasable(n, l.state.Instances[id], func(a string) bool { return h.used[a] != "" }, 3)
		if len(surplus.Addresses) > 0 {
			h.count("unassigned", l.p.Unassign(call, n, l.state.Instances[id], surplus))
			h.refresh(l, id)
		}
	case k < 19: // an agent uses what the instance has
		for _, i := range h.cloud.Interfaces() {
			if i.Instance == id && i.Type == secondary && i.Status == inUse && len(i.Secondary) > 0 && len(h.used) < 6 {
				h.used[i.Secondary[0]] = id
			}
		}
	default:
		h.tally["terminated"]++
		h.cloud.Terminate(id)
		maps.DeleteFunc(h.used, func(_, by string) bool { return by == id })
		h.ids[of] = fmt.Sprintf("i-%d", h.next) // no id is used again
		h.next++
		h.cloud.Run(h.ids[of], "ecs.large", "vsw-a", nil)
	}
}

func (h *history) count(what string, err error) {
	h.wait()
	if err == nil {
		h.tally[what]++
	}
}

func (h *history) refresh(l *leader, id string) {
	if some, err := l.p.ReadInstances(h.ctx(), []string{id}); err == nil {
		l.state.Instances[id] = some[id]
		h.check(l, some)
	}
}

// check compares what the provider shows with what the cloud has.
func (h *history) check(l *leader, instances map[string]*cloudipam.Instance) {
	owners := h.cloud.Owners()
	for id, i := range instances {
		if i == nil {
			continue
		}
		for a := range l.p.Addresses(nodeOf(id, nil), i) {
			if of := owners[a]; of != "" && of != id {
				h.fail("%s is shown on %s, and is of %s", a, id, of)
			}
		}
	}
}

// converge ends all faults: then nothing is left behind, and the provider shows what the cloud has.
func (h *history) converge() {
	h.wait()
	h.quiet = true
	for _, i := range h.cloud.Interfaces() {
		if i.Status == "Attaching" && h.later[task{id: i.ID}] != nil {
			h.cloud.Detach(i.ID)
		}
	}
	h.cloud.Show()
	l := h.lead()
	for t, u := range h.later {
		before := len(h.cloud.Interfaces())
		if err := u.reconcile(h.ctx(), t); err != nil {
			h.fail("deleting %+v: %v", t, err)
		}
		h.wait()
		h.cloud.Show()
		h.tally["deleted later"] += before - len(h.cloud.Interfaces())
	}
	left := slices.DeleteFunc(h.cloud.Interfaces(), func(i ecstest.Interface) bool { return i.Instance != "" })
	if len(left) > 0 {
		h.fail("interfaces are left behind: %+v", left)
	}
	state, err := l.p.Read(h.ctx())
	if err != nil {
		h.fail("a read fails without a fault: %v", err)
		return
	}
	has := map[string]string{}
	for id, i := range state.Instances {
		for a := range l.p.Addresses(nodeOf(id, nil), i) {
			has[a] = id
		}
	}
	owners := h.cloud.Owners()
	for _, i := range h.cloud.Interfaces() {
		if i.Status != inUse { // it is being attached yet
			for _, a := range append(i.Secondary, i.Primary) {
				delete(owners, a)
			}
		}
	}
	if !maps.Equal(has, owners) {
		h.fail("it shows %v, and the cloud has %v", has, owners)
	}
	for a, id := range h.used {
		if has[a] != id {
			h.fail("%s is used on %s, and is of %q", a, id, has[a])
		}
	}
	h.tally["converged"]++
}
