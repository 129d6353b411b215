// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/policy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// controller writes derived policies and CIDR groups. A key is that of a policy with groups, one without a namespace is of a
// clusterwide policy; or it is that of a group.
type controller struct {
	params
	checks      agentChecks
	lookups     *lookups // for derived policies
	external    *lookups // for CIDR groups, which are refreshed at other times
	users       *users
	cidrGroups  reconcile.OnDemand[cidrGroup]
	fresh       reconcile.Fresh
	policies    *stream.Store[networkpolicy.Policy]
	clusterwide *stream.Store[networkpolicy.ClusterwidePolicy]
	began       time.Time
	seen        map[slim.Key]fingerprint // used by functions that map changes

	mu         sync.Mutex
	states     map[slim.Key]string       // the label of the metric
	agents     map[slim.Key]agentRelease // by pod
	inGroups   map[string]time.Time      // since when groups have their CIDR groups in this term, zero: not yet
	inPolicies map[slim.Key]time.Time    // since when policies have their derived ones in this term
}

type params struct {
	cell.In

	Config      Config
	Timing      timing
	Agents      networkpolicy.Config
	Release     release.Configured
	Policies    stream.Resource[networkpolicy.Policy]
	Clusterwide stream.Resource[networkpolicy.ClusterwidePolicy]
	Providers   []networkpolicy.Provider `group:"policy group providers"`
	Client      k8s.Client
	Permissions *k8s.Permissions
	Events      *k8s.Events
	Deps        reconcile.Deps
	Metrics     *derivativeMetrics
}

func newController(p params) *controller {
	return &controller{
		params: p, lookups: newLookups(p.Providers, p.Metrics.Lookups),
		// Agents enforce rules with authentication in any case.
		checks:   agentChecks{p.Release.Release, p.Agents.Features().With(policy.Authentication)},
		external: newLookups(p.Providers, p.Metrics.Lookups), users: newUsers(), agents: map[slim.Key]agentRelease{},
		began: p.Deps.Plan.Now(), seen: map[slim.Key]fingerprint{}, states: map[slim.Key]string{},
		inGroups: map[string]time.Time{}, inPolicies: map[slim.Key]time.Time{},
	}
}

// The back-off of a policy whose look-up or write fails.
const (
	firstBackoff   = time.Second
	longestBackoff = 5 * time.Minute
)

// QueueOptions are those of the work queue.
func (c *controller) QueueOptions() []reconcile.Option {
	return []reconcile.Option{reconcile.Backoff(firstBackoff, longestBackoff), reconcile.NamespaceOf(c.namespaceOf)}
}

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) (err error) {
	if c.policies, err = c.Policies.Store(ctx); err != nil {
		return err
	}
	c.clusterwide, err = c.Clusterwide.Store(ctx)
	return err
}

// get is a policy in the cache, and its reference.
func (c *controller) get(key slim.Key) (p *networkpolicy.Policy, ref k8s.Ref, exists bool) {
	if key.Namespace == "" {
		clusterwide, exists := c.clusterwide.Get(key)
		return (*networkpolicy.Policy)(clusterwide), k8s.Ref{Resource: v2.CiliumClusterwideNetworkPolicyResource, Name: key.Name}, exists
	}
	p, exists = c.policies.Get(key)
	return p, k8s.Ref{Resource: v2.CiliumNetworkPolicyResource, Namespace: key.Namespace, Name: key.Name}, exists
}

// Why nothing is written.
const (
	isGone      = "none: the policy does not exist"
	isDeleted   = "none: the policy is being deleted"
	undecodable = "none: the policy cannot be decoded, its derived policy stays as it is"
)

// Reconcile brings what is made of a policy or a group to its desired state.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	switch {
	case key == leftovers:
		return c.reconcileLeftovers(ctx)
	case key.Namespace == groupNamespace:
		return c.reconcileGroup(ctx, key)
	}
	return c.reconcilePolicy(ctx, key)
}

// reconcilePolicy brings the policy that is derived from one to its desired state, and the status that tells of it.
func (c *controller) reconcilePolicy(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	p, ref, exists := c.get(key)
	if !exists {
		c.setState(key, "")
		c.setDerived(key, false)
		return reconcile.Result{Reason: isGone}, nil
	}
	groups, unknown := p.HasGroups()
	switch {
	case !groups && unknown:
		return reconcile.Result{Reason: undecodable}, nil
	case !groups && !c.isDerived(p) && !hasOrphans(p, groups):
		c.setState(key, "")
		return reconcile.Result{}, nil
	}
	ref.UID = p.UID.API()
	if groups && !c.needsDerived(p.Groups()) {
		return c.replaceDerived(ctx, key, p, ref)
	}
	if isLarge(p) {
		return c.reconcileLarge(ctx, key, p, ref)
	}
	parent, err := c.Client.Get(ctx, ref)
	if err != nil {
		return reconcile.Result{}, err
	}
	if parent.GetDeletionTimestamp() != nil {
		return reconcile.Result{Reason: isDeleted}, nil
	}
	if !groups {
		c.setState(key, "")
		c.setDerived(key, false)
		return reconcile.Result{}, c.remove(ctx, parent, ref)
	}
	if entriesOfRules(parent) > mostEntries || !mayHaveGroups(parent) { // the cache is behind
		return reconcile.Result{}, reconcile.Recheck()
	}
	return c.refresh(ctx, key, parent, ref)
}

// mostEntries is how many entries the rules of a policy may have that is read: each has some hundred bytes in memory, in several copies.
const mostEntries = 30_000

// isLarge reports whether a policy is not read, for its entries, or since agents do not accept it anyway.
func isLarge(p *networkpolicy.Policy) bool { return p.Entries() > mostEntries || p.IsRefused() }

// reconcileLarge is the Reconcile of such a policy. With groups its status says that it is none, and its derived policy stays as it is; without, that goes.
func (c *controller) reconcileLarge(ctx context.Context, key slim.Key, p *networkpolicy.Policy, ref k8s.Ref) (reconcile.Result, error) {
	parent, err := c.headOf(ctx, p, ref)
	if err != nil {
		return reconcile.Result{}, err
	}
	if groups, _ := p.HasGroups(); !groups {
		c.setState(key, "")
		c.setDerived(key, false)
		return reconcile.Result{}, c.removeDerived(ctx, parent, ref)
	}
	text := "it refers to groups, and a rule cannot be decoded or has too many entries: see the condition Valid"
	if !p.IsRefused() {
		text = fmt.Sprintf("it refers to groups, and its rules have more than %d entries together: put the rules with groups into a policy of their own", mostEntries)
	}
	failure := &invalidError{parent.GetKind(), "spec", text}
	c.setState(key, stateOf(failure))
	return reconcile.Result{RequeueAfter: errorInterval, Reason: failure.Error()}, c.writeStatus(ctx, parent, ref, nameOf(p.Name, p.UID.String()), failure)
}

// headOf reads the metadata and the status of a policy that is as it is in the cache.
func (c *controller) headOf(ctx context.Context, p *networkpolicy.Policy, ref k8s.Ref) (*unstructured.Unstructured, error) {
	ref.Subresource = "status"
	parent, err := c.Client.Get(ctx, ref)
	if err == nil && parent.GetResourceVersion() != p.ResourceVersion.String() {
		err = reconcile.Recheck()
	}
	return parent, err
}

// entriesOfRules is the number of objects and nulls in the rules of a policy.
func entriesOfRules(u *unstructured.Unstructured) (n int) {
	for _, field := range []string{"spec", "specs"} {
		if value, is := u.Object[field]; is {
			n += entriesIn(value)
		}
	}
	return n
}

// entriesIn is the number of objects and nulls in a value, which is one.
func entriesIn(value any) (n int) {
	switch value := value.(type) {
	case nil:
		n = 1
	case map[string]any:
		n = 1
		for _, v := range value {
			n += entriesIn(v)
		}
	case []any:
		for _, v := range value {
			n += entriesIn(v)
		}
	}
	return n
}

// isDerived reports whether the cache has the policy that is derived from one.
func (c *controller) isDerived(p *networkpolicy.Policy) bool {
	d, _, exists := c.get(slim.Key{Namespace: p.Namespace.String(), Name: nameOf(p.Name, p.UID.String())})
	return exists && d.Labels.Get(networkpolicy.ParentUIDLabel) == p.UID.String()
}

// refresh derives the policy again, at once and at the next refresh.
func (c *controller) refresh(ctx context.Context, key slim.Key, parent *unstructured.Unstructured, ref k8s.Ref) (reconcile.Result, error) {
	since := c.Deps.Plan.Now().Sub(c.began)
	interval := c.Config.DerivedPoliciesRefreshInterval
	failure := c.derive(ctx, parent, ref, int64(since/interval))
	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err()
	}
	if failure != nil && !concernsUser(failure) {
		return reconcile.Result{}, failure
	}
	c.setState(key, stateOf(failure))
	if failure == nil {
		c.setDerived(key, true)
	}
	name := nameOf(parent.GetName(), string(parent.GetUID()))
	if err := errors.Join(failure, c.writeStatus(ctx, parent, ref, name, failure)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: interval - since%interval}, nil
}

// derive writes the derived policy if it differs. Nothing is written if a group cannot be looked up.
func (c *controller) derive(ctx context.Context, parent *unstructured.Unstructured, ref k8s.Ref, refresh int64) error {
	rules, err := rulesOf(parent, c.checks)
	if err != nil {
		return err
	}
	groups := groupsOf(rules)
	if len(groups) > networkpolicy.MaxGroups {
		return &invalidError{parent.GetKind(), "spec", fmt.Sprintf("it has more than %d groups, and none is looked up", networkpolicy.MaxGroups)}
	}
	addresses, err := c.lookups.all(ctx, refresh, groups)
	if err != nil && !errors.Is(err, networkpolicy.ErrTooManyAddresses) {
		return err
	}
	if err != nil || tooMany(rules, addresses) {
		return &invalidError{parent.GetKind(), "spec", fmt.Sprintf("its groups have more than %d addresses in all entries together, and none is written: refer to fewer groups, or to each in fewer entries", maxAddresses)}
	}
	want := derive(parent, rules, addresses)
	at := k8s.Ref{Resource: ref.Resource, Namespace: ref.Namespace, Name: want.GetName()}
	_, _, err = c.Client.Modify(k8s.WithOneSource(ctx), at, func(u *unstructured.Unstructured) error {
		apply(u, want)
		return nil
	})
	if k8s.IsNotFound(err, at) {
		_, err = c.Client.Create(ctx, ref.Resource, want)
	}
	if k8s.IsAlreadyExists(err, at) {
		return reconcile.Recheck()
	}
	if err != nil {
		return fmt.Errorf("writing the derived policy %s: %w", at, err)
	}
	return nil
}

// writeStatus writes the entry of the derived policy to the status, if it says something else.
func (c *controller) writeStatus(ctx context.Context, parent *unstructured.Unstructured, ref k8s.Ref, name string, failure error) error {
	now, err := statusOf(parent)
	if err != nil {
		return fmt.Errorf("reading the status of %s: %w", ref, err)
	}
	entry := entryFor(failure, c.Deps.Plan.Now())
	if !now.set(name, entry) {
		return nil
	}
	ref.Subresource = "status"
	_, err = k8s.Update(k8s.WithOneSource(ctx), c.Client, ref, func(s *parentStatus) error {
		s.set(name, entry)
		return nil
	})
	return err
}

// remove deletes what is derived from a policy that has no groups any more.
func (c *controller) remove(ctx context.Context, parent *unstructured.Unstructured, ref k8s.Ref) error {
	if mayHaveGroups(parent) { // the cache is behind
		return reconcile.Recheck()
	}
	return c.removeDerived(ctx, parent, ref)
}

// removeDerived deletes what is derived from a policy, and the entry of its status.
func (c *controller) removeDerived(ctx context.Context, parent *unstructured.Unstructured, ref k8s.Ref) error {
	at := k8s.Ref{Resource: ref.Resource, Namespace: ref.Namespace, Name: nameOf(parent.GetName(), string(parent.GetUID()))}
	d, err := c.Client.Get(ctx, at)
	if err != nil && !k8s.IsNotFound(err, at) {
		return err
	}
	exists := err == nil && isDerivedFrom(d, parent)
	if exists {
		at.UID = d.GetUID()
		if err := k8s.Delete(ctx, c.Client, at); err != nil {
			return fmt.Errorf("deleting the derived policy %s: %w", at, err)
		}
	}
	if err := c.writeStatus(ctx, parent, ref, "", nil); err != nil || !exists {
		return err
	}
	return reconcile.Recheck() // until the cache shows the deletion
}

const (
	stateOK      = "ok"
	stateError   = "error"
	statePending = "pending"
)

func stateOf(failure error) string {
	if failure != nil {
		return stateError
	}
	return stateOK
}

// setState counts a policy with groups, "" for one that has none.
func (c *controller) setState(key slim.Key, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.states, key); state != "" {
		c.states[key] = state
	}
	count := map[string]int{stateOK: 0, stateError: 0}
	for _, s := range c.states {
		count[s]++
	}
	for s, n := range count {
		c.Metrics.Policies.WithLabelValues(s).Set(float64(n))
	}
}
