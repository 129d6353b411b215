// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Why nothing is changed at the cloud.
const (
	reasonUnstable = "none: the last read of the cloud failed"
	reasonAwaits   = "none: the instance is read again after a change"
	reasonIgnored  = "none: the annotation ipam.cilium.io/ignore says so"
	reasonAdded    = "addresses were added: they are written when the instance was read again"
)

// reconcile makes at most one change to the cloud for a CiliumNode, and writes it.
func (c *controller) reconcile(ctx context.Context, name string) error {
	n, ok := c.nodes.Get(slim.Key{Name: name})
	if !ok || !n.DeletionTimestamp.IsZero() {
		if !c.nodes.Hides(slim.Key{Name: name}) {
			c.forget(name)
		}
		return nil
	}
	if n.isIgnored() {
		explain.SetReason(ctx, reasonIgnored)
		return nil
	}
	st := c.stateOf(n)
	panicked := true
	defer func() {
		if panicked { // by the provider: the cloud may have changed
			c.changed(st)
		}
	}()
	err := c.maintainNode(ctx, n, st)
	panicked = false
	return err
}

// maintainNode makes at most one change to the cloud for a CiliumNode that exists, and writes it.
func (c *controller) maintainNode(ctx context.Context, n *ciliumNode, st *nodeState) error {
	name := n.Name
	if text := c.refusal(n); text != "" {
		c.refuse(name, text)
		return c.writeProblem(ctx, n, text)
	}
	i, known, unstable := c.cloud.get(st.instance)
	if !known {
		c.want(st.instance)
		return nil
	}
	owner, err := c.ownerOf(ctx, n, i.Instance)
	switch {
	case err != nil:
		return err
	case owner != name:
		text := fmt.Sprintf("instance %s belongs to CiliumNode %s: delete the CiliumNode that is obsolete", st.instance, owner)
		c.refuse(name, text)
		return c.writeProblem(ctx, n, text)
	case i.Instance == nil:
		c.count(name, st, numbers{used: len(n.Status.IPAM.Used)})
		c.refuse(name, "Instance not found! Please delete corresponding ciliumnode if instance has already been deleted.")
		return nil // the instance may be filtered: what it has had stays
	case c.own(st.instance, name):
		c.cloud.outdate(st.instance, c.now()) // the other one may have changed it
		c.want(st.instance)
		return nil
	}
	now := c.now()
	st.confirm(i.read, i.shows, now)
	s, err := snapshotOf(c.Provider, c.Cluster.IPAM, n.forProvider(c.Cluster), i.Instance, st.isDetached, c.isShared(st.instance))
	if err != nil {
		c.count(name, st, numbers{known: true, used: s.used})
		c.refuse(name, fmt.Sprintf("Instance limits not found.: %v", err))
		return nil
	}
	c.reportUnfit(name, s.unfit)
	if st.added = false; st.pools != s.pools {
		st.pools = s.pools
		st.propose(nil, now) // an answer in one protocol is none in the other
	}
	pause := c.maintain(ctx, st, s, maintenance{unstable: unstable, read: i.read, now: now})
	c.countSnapshot(name, st, s)
	if st.added && s.isInPool() {
		explain.SetReason(ctx, reasonAdded)
		return ctx.Err()
	}
	if err := c.writeNode(ctx, n, st, s); err != nil {
		if k8s.IsNotFound(err, k8s.Ref{Resource: ciliumNodes.Resource(), Name: name}) {
			return reconcile.Recheck() // its deletion is to come
		}
		return err
	}
	if pause > 0 {
		return reconcile.RequeueAfter(pause)
	}
	return ctx.Err()
}

// refusal is why a CiliumNode gets no addresses whatever the cloud has, "" if it does.
func (c *controller) refusal(n *ciliumNode) string {
	if err := n.DecodeError(); err != nil {
		return err.Error()
	}
	if n.instanceID() == "" {
		return "spec.instance-id is empty: the agent sets it"
	}
	return ""
}

// refuse reports a node that gets no addresses.
func (c *controller) refuse(name, text string) {
	if c.report(name, text) {
		c.Log.Warn("no addresses for CiliumNode", "name", name, "reason", text)
	}
}

// shows reports whether an instance has an address.
func (i observed) shows(address string) bool {
	return slices.ContainsFunc(i.Interfaces, func(of Interface) bool { return slices.Contains(of.Addresses, address) })
}

func (c *controller) countSnapshot(name string, st *nodeState, s snapshot) {
	needed := s.needed()
	c.count(name, st, numbers{
		known: true, capacity: s.limits.Capacity, used: s.used, available: len(s.has), needed: needed,
		interfaces: s.limits.Interfaces, slots: s.limits.EmptySlots, atCapacity: !st.slotsAt.IsZero() || s.limits.Interfaces+s.limits.EmptySlots == 0,
	})
}

// maintenance is the circumstances of a run.
type maintenance struct {
	unstable error
	read     uint64 // of the instance
	now      time.Time
}

// maintain changes at most one interface. pause is when the node is to be processed again, 0 for at its next change.
func (c *controller) maintain(ctx context.Context, st *nodeState, s snapshot, m maintenance) (pause time.Duration) {
	switch {
	case m.unstable != nil:
		explain.SetReason(ctx, reasonUnstable)
		return 0
	case st.awaits >= m.read && st.awaits > 0:
		explain.SetReason(ctx, reasonAwaits)
		return 0
	}
	called, retry := c.maintainStaticIP(ctx, st, s, m.now)
	if called {
		return retry
	}
	return sooner(retry, c.maintainAddresses(ctx, st, s, m.now))
}

// maintainAddresses changes at most one interface.
func (c *controller) maintainAddresses(ctx context.Context, st *nodeState, s snapshot, now time.Time) (pause time.Duration) {
	if rest := st.retry.at.Sub(now); rest > 0 && !st.isResumed(s.node) {
		return rest
	}
	st.paused = nil
	pause, err := c.change(ctx, st, s, now)
	if err == nil {
		st.problem = ""
		c.report(s.node.Name, st.static.problem)
		return pause
	}
	return c.fail(ctx, st, s, err, now)
}

// sooner is the shorter of two pauses, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// isResumed reports whether a node was paused by its provider, and what others write of its spec has changed since.
func (st *nodeState) isResumed(n *Node) bool {
	return st.paused != nil && !equality.Semantic.DeepEqual(st.paused, ofOthers(n.Spec))
}

// ofOthers is a spec without what is written here.
func ofOthers(spec *v2.CiliumNodeSpec) *v2.CiliumNodeSpec {
	of := *spec
	of.IPAM.Pool, of.IPAM.Pools, of.IPAM.PreAllocate = nil, v2.IPAMPools{}, 0
	return &of
}

// change assigns a prefix of IPv6, releases what is surplus, or assigns what is needed.
func (c *controller) change(ctx context.Context, st *nodeState, s snapshot, now time.Time) (time.Duration, error) {
	if called, err := c.assignIPv6(ctx, st, s); called {
		return 0, err
	}
	if s.needed() > 0 {
		st.propose(nil, now) // nothing is surplus any more
		return 0, c.allocate(ctx, st, s, now)
	}
	st.slotsAt = time.Time{}
	ready, pause := c.surplus(st, s, now)
	if len(ready) > 0 {
		return pause, c.release(ctx, st, s, ready, now)
	}
	return pause, nil
}

// surplus are the addresses that the agent has given back. pause is when there may be more, 0 for at the next change.
func (c *controller) surplus(st *nodeState, s snapshot, now time.Time) (ready []string, pause time.Duration) {
	delay, excess := c.Config.delay(), s.excess()
	switch {
	case !c.Config.ReleaseExcessIPs:
		st.propose(nil, now)
	case s.pools:
		return st.leave(s.unlisted(c.Provider), now, delay)
	case excess > 0:
		var all []string
		for _, unit := range s.unitsOf(c.Provider.Releasable(s.node, s.instance, s.isUsed, excess)) {
			all = append(all, unit...)
		}
		st.propose(all, now)
		ready = st.advance(s.node.Status.IPAM.ReleaseIPs, now, delay)
	default:
		st.propose(nil, now)
	}
	pause, _ = st.next(now, delay)
	return ready, pause
}

// slotsInterval is how often it is logged that a node can have no more interfaces.
const slotsInterval = time.Hour

// allocate adds addresses to one interface, or attaches another one.
func (c *controller) allocate(ctx context.Context, st *nodeState, s snapshot, now time.Time) error {
	count := s.request(c.pending(s.node.Name))
	if count == 0 {
		return nil
	}
	subnets := c.cloud.allSubnets()
	room, ok := c.Provider.FreeInterface(s.node, s.instance, subnets)
	var assignErr error
	if ok {
		count := min(count, room.Count)
		began := time.Now()
		assignErr = c.Provider.Assign(ctx, s.node, s.instance, room, count)
		if errors.Is(assignErr, outside.ErrPlanned) {
			return assignErr
		}
		c.Metrics.observe(c.Metrics.AllocationDuration, typeAssign, room.Subnet, began, assignErr)
		c.changed(st)
		if assignErr == nil {
			st.slotsAt = time.Time{}
			c.Metrics.Allocations.WithLabelValues(c.Metrics.subnetLabel(room.Subnet)).Add(float64(count))
			c.cloud.use(room.Subnet, count)
			st.added = true
			return nil
		}
		if s.limits.EmptySlots == 0 || isPause(assignErr) || ctx.Err() != nil {
			return assignErr
		}
		c.Log.Warn("unable to assign additional IPs to interface, will create new interface", "name", s.node.Name, "interface", room.Interface, "error", assignErr)
	}
	if s.limits.EmptySlots == 0 {
		return c.exhausted(st, s, subnets, now)
	}
	return c.createInterface(ctx, st, s, subnets, count)
}

// exhausted is why an instance can have no more addresses, nil for that it is at its limits.
func (c *controller) exhausted(st *nodeState, s snapshot, subnets map[string]Subnet, now time.Time) error {
	if e, ok := c.Provider.(Explainer); ok {
		if err := e.ExhaustedError(s.node, s.instance, subnets); err != nil {
			return err
		}
	}
	c.warnSlots(st, s, now)
	return nil
}

// warnSlots logs once per hour that a node can have no more interfaces.
func (c *controller) warnSlots(st *nodeState, s snapshot, now time.Time) {
	if st.slotsAt.IsZero() || now.Sub(st.slotsAt) >= slotsInterval {
		st.slotsAt = now
		c.Log.Warn("instance is out of interfaces", "name", s.node.Name, "instance", s.instance.ID, "needed", s.needed())
	}
}

func (c *controller) createInterface(ctx context.Context, st *nodeState, s snapshot, subnets map[string]Subnet, count int) error {
	began := time.Now()
	made, err := c.Provider.CreateInterface(ctx, s.node, s.instance, subnets, count)
	if errors.Is(err, outside.ErrPlanned) {
		return err
	}
	c.Metrics.observe(c.Metrics.AllocationDuration, typeCreate, made.Subnet, began, err)
	c.changed(st)
	if err != nil {
		return err
	}
	c.Metrics.Creations.WithLabelValues(c.Metrics.subnetLabel(made.Subnet)).Inc()
	c.Metrics.Allocations.WithLabelValues(c.Metrics.subnetLabel(made.Subnet)).Add(float64(made.Count))
	c.cloud.use(made.Subnet, made.Count)
	st.added = true
	return nil
}

// changed has the instance read before the next change: the cloud may have made one, also after an error.
func (c *controller) changed(st *nodeState) {
	st.awaits = c.cloud.begun()
	c.want(st.instance)
}

// release removes addresses that the agent has released, or prefixes of these, from the first of their interfaces.
func (c *controller) release(ctx context.Context, st *nodeState, s snapshot, ready []string, now time.Time) error {
	ready, err := c.confirmed(ctx, s, ready)
	if err != nil {
		return err
	}
	from, all := s.surplusOf(ready)
	if len(all) == 0 {
		return nil
	}
	began := time.Now()
	err = c.Provider.Unassign(ctx, s.node, s.instance, from)
	if errors.Is(err, outside.ErrPlanned) {
		return err
	}
	what := typeRelease
	if len(from.Prefixes) > 0 {
		what = typeReleasePrefixes
	}
	c.Metrics.observe(c.Metrics.ReleaseDuration, what, from.Subnet, began, err)
	c.changed(st)
	if err != nil {
		return err
	}
	st.detach(all, c.cloud.begun(), now)
	c.Metrics.Releases.WithLabelValues(c.Metrics.subnetLabel(from.Subnet)).Add(float64(len(all)))
	return nil
}

// fail records a failure, and returns the pause before the next attempt.
func (c *controller) fail(ctx context.Context, st *nodeState, s snapshot, err error, now time.Time) time.Duration {
	name := s.node.Name
	if pause, is := c.isNoFailure(ctx, &st.retry, err, now); is {
		return pause
	}
	text, of := err.Error(), new(NodeError)
	if errors.As(err, &of) && of.Text != "" {
		st.problem, text = of.Text, of.Text
	}
	if c.report(name, text) {
		c.Log.Warn("changing addresses of instance failed, retrying", "name", name, "instance", s.instance.ID, "error", err)
	}
	if of.Pause > 0 {
		st.paused, st.retry.at = ofOthers(s.node.Spec).DeepCopy(), now.Add(of.Pause)
		return of.Pause
	}
	return c.retryAfter(&st.retry, now)
}

// isNoFailure reports whether a call was not made, or is to be repeated when the cloud wants it, and the pause before.
func (c *controller) isNoFailure(ctx context.Context, r *retry, err error, now time.Time) (pause time.Duration, is bool) {
	asked := new(outside.ThrottledError)
	switch {
	case ctx.Err() != nil || errors.Is(err, leading.ErrFenced):
		return time.Second, true
	case errors.Is(err, outside.ErrPlanned):
		explain.SetReason(ctx, err.Error())
		return 0, true
	case errors.As(err, &asked):
		pause := max(asked.RetryAfter(), time.Second/10)
		r.at = now.Add(pause)
		return pause, true
	}
	return 0, false
}

// retryAfter is the pause after a failure.
func (c *controller) retryAfter(r *retry, now time.Time) time.Duration {
	c.mu.Lock()
	nodes := len(c.states)
	c.mu.Unlock()
	return r.failed(now, nodes, c.random())
}

// isPause reports whether the cloud wants to be left alone.
func isPause(err error) bool {
	return errors.As(err, new(*outside.ThrottledError))
}
