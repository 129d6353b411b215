// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// groupNamespace is that of the keys of groups, whose names are ids. No object has it.
const groupNamespace = ":group"

func groupKey(id string) slim.Key { return slim.Key{Namespace: groupNamespace, Name: id} }

// leftovers is the key of the CIDR groups that an earlier operator has left behind, and of those without an id.
var leftovers = groupKey("")

// cidrGroupsOnDemand is the kind that is watched while a group needs it: roles of releases without CIDR groups do not allow it.
func (c *controller) cidrGroupsOnDemand() *reconcile.OnDemand[cidrGroup] { return &c.cidrGroups }

// cidrGroupChanged are the groups that a CIDR group is for.
func (c *controller) cidrGroupChanged(ch stream.Change[cidrGroup]) (keys []slim.Key) {
	for _, id := range ch.Object.ids() {
		keys = append(keys, groupKey(id))
		if ch.Kind == stream.Upsert { // whether a policy has the group or not
			c.cidrGroups.Need(groupKey(id))
		}
	}
	if len(keys) == 0 {
		return []slim.Key{leftovers}
	}
	return keys
}

// Synced are the keys that are reconciled in any case.
func (c *controller) Synced(context.Context) []slim.Key { return []slim.Key{leftovers} }

// deniesCIDRGroups reports whether the role does not allow to keep CIDR groups. Those of the charts of 1.18 and 1.19 do not.
func (c *controller) deniesCIDRGroups() bool {
	of := k8s.Ref{Resource: cidrGroups.Resource()}
	return slices.ContainsFunc([]string{"list", "watch", "create", "update"}, func(verb string) bool { return c.Permissions.Denies(verb, of) })
}

// mayRemoveCIDRGroups reports whether it is known that the role allows to remove them.
func (c *controller) mayRemoveCIDRGroups() bool {
	of := k8s.Ref{Resource: cidrGroups.Resource()}
	return c.Permissions.Allows("list", of) && c.Permissions.Allows("watch", of) && c.Permissions.Allows("delete", of)
}

// Why nothing is written of a group.
const (
	notKnownYet = "none: CiliumCIDRGroups are not known yet"
	roleUnknown = "none: it is not known yet what the role allows"
	maybeUsed   = "none: a policy that cannot be decoded may refer to the group"
	notDerived  = "none: not all policies with the group have their derived ones yet"
)

// roleLimit is how long is waited until it is known what the role allows: some API servers never say.
const roleLimit = 10 * time.Second

// reconcileGroup brings the CIDR group of a group to its desired state.
func (c *controller) reconcileGroup(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	group, policies, used, unsure := c.users.group(key.Name)
	_, grouped := c.forms()
	wanted := used && isServable(group)
	if !wanted || !grouped {
		c.setGroup(key.Name, false, time.Time{})
	}
	needed := wanted && grouped && !c.deniesCIDRGroups()
	if !needed && !c.cidrGroups.Needs(key) {
		c.users.forget(key.Name)
		return reconcile.Result{}, nil
	}
	if !c.Permissions.Known() && c.Deps.Plan.Now().Sub(c.began) < roleLimit {
		return reconcile.Result{RequeueAfter: time.Second, Reason: roleUnknown}, nil
	}
	store := c.cidrGroups.Need(key)
	if store == nil {
		return reconcile.Result{Reason: notKnownYet}, nil
	}
	stored := slices.SortedFunc(stream.ByIndex(store, byID, key.Name), oldestFirst)
	switch {
	case needed:
		return c.keepCIDRGroup(ctx, key.Name, group, policies, stored)
	case len(stored) == 0:
		c.cidrGroups.Drop(key)
		c.users.forget(key.Name)
		return reconcile.Result{}, nil
	case unsure:
		return reconcile.Result{RequeueAfter: c.Timing.recheck, Reason: maybeUsed}, nil
	case (used || !grouped) && !c.haveDerived(policies): // agents have no addresses of the group yet but by this
		return reconcile.Result{RequeueAfter: c.Timing.recheck, Reason: notDerived}, nil
	}
	return reconcile.Result{}, c.removeCIDRGroups(ctx, stored)
}

// keepCIDRGroup writes the CIDR group of a group if it differs, and deletes others that have its id.
func (c *controller) keepCIDRGroup(ctx context.Context, id string, group networkpolicy.Group, policies []slim.Key, stored []*cidrGroup) (reconcile.Result, error) {
	now, interval := c.Deps.Plan.Now(), c.Config.PolicyExternalGroupSyncInterval
	since := now.Sub(c.began)
	cidrs, err := c.addressesOf(ctx, group, int64(since/interval))
	if err != nil {
		c.setGroup(id, true, time.Time{})
		c.warn(policies, err)
		return reconcile.Result{}, err
	}
	if err := c.writeCIDRGroup(ctx, group, cidrs, stored); err != nil {
		return reconcile.Result{}, err
	}
	c.setGroup(id, true, now)
	if len(stored) > 1 {
		if err := c.removeCIDRGroups(ctx, stored[1:]); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: interval - since%interval}, nil
}

// addressesOf looks a group up.
func (c *controller) addressesOf(ctx context.Context, g networkpolicy.Group, refresh int64) ([]string, error) {
	parts := partsOf(g)
	found, err := c.external.all(ctx, refresh, parts)
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 { // of no provider
		return []string{}, nil
	}
	return cidrsOf(found[parts[0]]), nil
}

func (c *controller) writeCIDRGroup(ctx context.Context, group networkpolicy.Group, cidrs []string, stored []*cidrGroup) error {
	if len(stored) == 0 {
		if _, err := c.Client.Create(ctx, cidrGroups.Resource(), newCIDRGroup(group, cidrs)); err != nil {
			return fmt.Errorf("creating the CiliumCIDRGroup of %s: %w", group, err)
		}
		return nil
	}
	if stored[0].isAsWanted(group, cidrs) {
		return nil
	}
	ref := refOf(stored[0])
	_, _, err := c.Client.Modify(k8s.WithOneSource(ctx), ref, func(u *unstructured.Unstructured) error {
		setCIDRGroup(u, group, cidrs)
		return nil
	})
	if k8s.IsNotFound(err, ref) {
		return reconcile.Recheck()
	}
	if err != nil {
		return fmt.Errorf("writing the CiliumCIDRGroup %s of %s: %w", ref.Name, group, err)
	}
	return nil
}

func refOf(g *cidrGroup) k8s.Ref {
	return k8s.Ref{Resource: cidrGroups.Resource(), Name: g.Name, UID: g.UID.API()}
}

// removeCIDRGroups deletes CIDR groups once it is known which policies there are.
func (c *controller) removeCIDRGroups(ctx context.Context, groups []*cidrGroup) error {
	if !c.fresh.Is() && !c.fresh.Await(ctx, c.Deps, c.Policies, c.Clusterwide) {
		return ctx.Err()
	}
	for _, g := range groups {
		if err := k8s.Delete(ctx, c.Client, refOf(g)); err != nil {
			return fmt.Errorf("deleting the CiliumCIDRGroup %s: %w", g.Name, err)
		}
	}
	return reconcile.Recheck() // what else there is, and until the cache shows the deletion
}

// reconcileLeftovers has the CIDR groups of earlier operators looked at, once, and deletes those without an id.
func (c *controller) reconcileLeftovers(ctx context.Context) (reconcile.Result, error) {
	pause := c.Timing.leftovers // a term begins without a request
	if c.Deps.Plan != nil {     // and how far a plan looks ahead is the same each time
		pause = 0
	}
	if wait := pause - c.Deps.Plan.Now().Sub(c.began); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	switch {
	case !c.mayRemoveCIDRGroups() && c.Permissions.Known():
		return reconcile.Result{}, nil
	case !c.mayRemoveCIDRGroups():
		return reconcile.Result{RequeueAfter: max(pause, time.Second)}, nil
	}
	store := c.cidrGroups.Need(leftovers)
	if store == nil {
		return reconcile.Result{}, nil
	}
	var without []*cidrGroup
	left := false
	for g := range store.All() {
		ids := g.ids()
		if len(ids) == 0 {
			without = append(without, g)
		}
		left = left || slices.ContainsFunc(ids, func(id string) bool { return !c.cidrGroups.Needs(groupKey(id)) })
	}
	switch {
	case len(without) > 0:
		return reconcile.Result{}, c.removeCIDRGroups(ctx, without)
	case left: // the changes are still to be mapped to the keys of the groups, which need the kind themselves then
		return reconcile.Result{RequeueAfter: c.Timing.recheck}, nil
	}
	c.cidrGroups.Drop(leftovers)
	return reconcile.Result{}, nil
}

// maxWarned is to how many policies an Event says that their group cannot be looked up.
const maxWarned = 10

// warn says on the policies with a group that it cannot be looked up.
func (c *controller) warn(policies []slim.Key, failure error) {
	for _, key := range policies[:min(len(policies), maxWarned)] {
		if p, ref, exists := c.get(key); exists {
			kind := networkpolicy.Policies.Name()
			if key.Namespace == "" {
				kind = networkpolicy.ClusterwidePolicies.Name()
			}
			c.Events.Warning(corev1.ObjectReference{
				APIVersion: v2.SchemeGroupVersion.String(), Kind: kind, Namespace: ref.Namespace, Name: ref.Name, UID: p.UID.API(),
			}, "GroupNotLookedUp", failure.Error())
		}
	}
}
