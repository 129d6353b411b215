// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// The addresses of groups have two forms: derived policies, which all agents take, and CIDR groups. One form is removed when the
// other one has been in place for so long that agents have it: they watch the two kinds independently of each other.

// timing is how long the change from one form to the other takes. Tests have shorter times.
type timing struct {
	leftovers time.Duration // from the beginning of a term until what others have left is looked at
	overlap   time.Duration // for which both forms are in place
	recheck   time.Duration // between looks at what is waited for
}

// agentRelease is the release of an agent, if it is known.
type agentRelease struct {
	release release.Release
	known   bool
}

// podChanged are all policies and groups, if the forms that agents need are others than before.
func (c *controller) podChanged(ch stream.Change[agents.Pod]) []slim.Key {
	derived, grouped := c.forms()
	c.mu.Lock()
	if delete(c.agents, ch.Key); ch.Kind == stream.Upsert {
		r, known := ch.Object.Release()
		c.agents[ch.Key] = agentRelease{r, known}
	}
	c.mu.Unlock()
	if d, g := c.forms(); d == derived && g == grouped {
		return nil
	}
	keys, ids := c.users.all()
	for _, id := range ids {
		keys = append(keys, groupKey(id))
	}
	return keys
}

// forms are those that the agents that run need. One whose release is not known, and none that is known to run, counts as one of the
// configured release; where that is not known, either, as one that needs derived policies, which all agents use.
func (c *controller) forms() (derived, grouped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add := func(r release.Release) {
		if release.GroupsAreCIDRGroups.In(r) {
			grouped = true
		} else {
			derived = true
		}
	}
	unknown := len(c.agents) == 0 || c.Release.Forced
	for _, a := range c.agents {
		if unknown = unknown || !a.known; a.known && !c.Release.Forced {
			add(a.release)
		}
	}
	switch {
	case unknown && c.Release.Unknown:
		derived = true
	case unknown:
		add(c.Release.Release)
	}
	return derived, grouped
}

// needsDerived reports whether a policy has a derived one whatever CIDR groups there are: for agents that need it, and for groups that
// cannot have a CIDR group.
func (c *controller) needsDerived(groups []networkpolicy.Group) bool {
	derived, _ := c.forms()
	return derived || c.deniesCIDRGroups() || len(groups) > networkpolicy.MaxGroups ||
		slices.ContainsFunc(groups, func(g networkpolicy.Group) bool { return !isServable(g) })
}

// setGroup records that a group has its CIDR group, or, without a time, that it is not known to.
func (c *controller) setGroup(id string, wanted bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch since, known := c.inGroups[id]; {
	case !wanted:
		delete(c.inGroups, id)
	case !known || since.IsZero():
		c.inGroups[id] = now
	}
	inPlace := 0
	for _, since := range c.inGroups {
		if !since.IsZero() {
			inPlace++
		}
	}
	c.Metrics.Groups.WithLabelValues(stateOK).Set(float64(inPlace))
	c.Metrics.Groups.WithLabelValues(statePending).Set(float64(len(c.inGroups) - inPlace))
}

// setDerived records whether a policy has its derived one.
func (c *controller) setDerived(key slim.Key, has bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !has {
		delete(c.inPolicies, key)
	} else if c.inPolicies[key].IsZero() {
		c.inPolicies[key] = c.Deps.Plan.Now()
	}
}

// haveDerived reports whether agents have the derived ones of all policies by now.
func (c *controller) haveDerived(policies []slim.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(policies, func(key slim.Key) bool { return !c.isInPlace(c.inPolicies[key]) })
}

// haveCIDRs reports whether agents have the CIDR groups of all groups by now.
func (c *controller) haveCIDRs(groups []networkpolicy.Group) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(groups, func(g networkpolicy.Group) bool { return !c.isInPlace(c.inGroups[g.ID()]) })
}

func (c *controller) isInPlace(since time.Time) bool {
	return !since.IsZero() && c.Deps.Plan.Now().Sub(since) >= c.Timing.overlap
}

// replaceDerived is the Reconcile of a policy whose groups have CIDR groups: its derived one goes when agents have those.
func (c *controller) replaceDerived(ctx context.Context, key slim.Key, p *networkpolicy.Policy, ref k8s.Ref) (reconcile.Result, error) {
	derived := c.isDerived(p)
	_, unknown := p.HasGroups()
	if !derived && len(p.Derived()) == 0 {
		c.setState(key, "")
		return reconcile.Result{}, nil
	}
	read := func() (*unstructured.Unstructured, error) { return c.Client.Get(ctx, ref) }
	if isLarge(p) { // its derived policy is not refreshed, and goes when agents have the CIDR groups
		read = func() (*unstructured.Unstructured, error) { return c.headOf(ctx, p, ref) }
	}
	parent, err := read()
	if err != nil {
		return reconcile.Result{}, err
	}
	if parent.GetDeletionTimestamp() != nil {
		return reconcile.Result{Reason: isDeleted}, nil
	}
	if !derived || !unknown && c.haveCIDRs(p.Groups()) {
		c.setState(key, "")
		c.setDerived(key, false)
		return reconcile.Result{}, c.removeDerived(ctx, parent, ref)
	}
	if isLarge(p) {
		return reconcile.Result{RequeueAfter: c.Timing.recheck, Reason: undecodable}, nil
	}
	result, err := c.refresh(ctx, key, parent, ref)
	result.RequeueAfter = min(result.RequeueAfter, c.Timing.recheck)
	return result, err
}
