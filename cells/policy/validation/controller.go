// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package validation

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/policy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// controller writes the Valid condition of network policies. A key without a namespace is of a clusterwide policy.
type controller struct {
	params
	features    policy.Features
	policies    *stream.Store[networkpolicy.Policy]
	clusterwide *stream.Store[networkpolicy.ClusterwidePolicy]
	invalid     map[slim.Key]bool // used by functions that map changes
}

type params struct {
	cell.In

	Agents      networkpolicy.Config
	Cluster     cluster.Config
	Mesh        spire.Config
	Policies    stream.Resource[networkpolicy.Policy]
	Clusterwide stream.Resource[networkpolicy.ClusterwidePolicy]
	Client      k8s.Client
	Events      *k8s.Events
	Deps        reconcile.Deps
	Metrics     *validationMetrics
}

func newController(p params) *controller {
	features := p.Agents.Features()
	if p.Mesh.MeshAuthEnabled {
		features = features.With(policy.Authentication)
	}
	return &controller{params: p, features: features, invalid: map[slim.Key]bool{}}
}

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) (err error) {
	if c.policies, err = c.Policies.Store(ctx); err != nil {
		return err
	}
	c.clusterwide, err = c.Clusterwide.Store(ctx)
	return err
}

func (c *controller) policyChanged(ch stream.Change[networkpolicy.Policy]) []slim.Key {
	return c.changed(ch.Key, ch.Object, ch.Kind == stream.Delete)
}

func (c *controller) clusterwidePolicyChanged(ch stream.Change[networkpolicy.ClusterwidePolicy]) []slim.Key {
	return c.changed(ch.Key, (*networkpolicy.Policy)(ch.Object), ch.Kind == stream.Delete)
}

// changed is the key of a policy whose condition has to be written: most have the right one.
func (c *controller) changed(key slim.Key, p *networkpolicy.Policy, deleted bool) []slim.Key {
	want := validity{}
	deleted = deleted || !c.isChecked(key)
	if !deleted {
		want = validityOf(p.Problems(c.features, c.Cluster.Release))
	}
	if want.Message == succeeded || deleted {
		delete(c.invalid, key)
	} else {
		c.invalid[key] = true
	}
	c.Metrics.Invalid.Set(float64(len(c.invalid)))
	if deleted || !p.CannotDecode(conditionsField) && current(p) == want {
		return nil
	}
	return []slim.Key{key}
}

// isChecked reports whether policies of the kind of a key get a condition.
func (c *controller) isChecked(key slim.Key) bool {
	if !release.CheckedByKind.In(c.Cluster.Release) {
		return true
	}
	if key.Namespace == "" {
		return c.Cluster.EnableCiliumClusterwideNetworkPolicy
	}
	return c.Cluster.EnableCiliumNetworkPolicy
}

// conditionsField holds the condition.
const conditionsField = "status.conditions"

// isGone is why nothing is written.
const isGone = "none: the policy does not exist"

// Reconcile writes the condition of a policy if it has another one.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	p, ref, exists := c.get(key)
	if !exists {
		return reconcile.Result{Reason: isGone}, nil
	}
	if p.CannotDecode(conditionsField) {
		return reconcile.Result{}, fmt.Errorf("comparing the condition Valid of %s: %w", ref, p.DecodeError())
	}
	want, is := validityOf(p.Problems(c.features, c.Cluster.Release)), current(p)
	if want == is {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, c.write(ctx, p, ref, is, want)
}

// get is a policy, and the reference of its status.
func (c *controller) get(key slim.Key) (p *networkpolicy.Policy, ref k8s.Ref, exists bool) {
	if key.Namespace == "" {
		clusterwide, exists := c.clusterwide.Get(key)
		return (*networkpolicy.Policy)(clusterwide), k8s.Ref{Resource: v2.CiliumClusterwideNetworkPolicyResource, Name: key.Name, Subresource: "status"}, exists
	}
	p, exists = c.policies.Get(key)
	return p, k8s.Ref{Resource: v2.CiliumNetworkPolicyResource, Namespace: key.Namespace, Name: key.Name, Subresource: "status"}, exists
}

func (c *controller) write(ctx context.Context, p *networkpolicy.Policy, ref k8s.Ref, is, want validity) error {
	body, err := patch(p, want, c.Deps.Plan.Now())
	if err != nil {
		return err
	}
	_, err = c.Client.Patch(k8s.WithOneSource(ctx), ref, body, k8s.PatchedValue{
		Field: "status.conditions of " + string(v2.PolicyConditionValid), From: is, To: want,
		In: func(u *unstructured.Unstructured) any { return stored(u) },
	})
	if k8s.Refused(err) {
		err = reconcile.PatchRefused(ctx, c.Client, ref, p.ResourceVersion.String(), err)
	}
	if err != nil {
		return err
	}
	c.Metrics.Written.Inc()
	if want.Message != succeeded {
		message, _, _ := strings.Cut(want.Message, "\n")
		c.Events.Warning(aboutPolicy(p), "InvalidPolicy", message)
	}
	return nil
}

// stored is the validity in a policy as stored.
func stored(u *unstructured.Unstructured) (v validity) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range conditions {
		if c, _ := one.(map[string]any); c["type"] == string(v2.PolicyConditionValid) {
			status, _ := c["status"].(string)
			v.Status = metav1.ConditionStatus(status)
			v.Message, _ = c["message"].(string)
		}
	}
	return v
}

// aboutPolicy is what an Event about a policy refers to.
func aboutPolicy(p *networkpolicy.Policy) corev1.ObjectReference {
	kind := networkpolicy.Policies.Name()
	if p.Namespace.String() == "" {
		kind = networkpolicy.ClusterwidePolicies.Name()
	}
	return corev1.ObjectReference{
		APIVersion: v2.SchemeGroupVersion.String(), Kind: kind, Namespace: p.Namespace.String(), Name: p.Name, UID: p.UID.API(),
	}
}
