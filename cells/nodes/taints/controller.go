// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package taints

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// The back-off of a node whose patch fails.
const (
	firstBackoff   = time.Second
	longestBackoff = 2 * time.Minute
)

// A node has two keys, so that neither write holds up the other: taint/<node> and condition/<node>.
const (
	taintKeys     = "taint"
	conditionKeys = "condition"
)

// controller writes the taints and the condition of nodes.
type controller struct {
	params
	nodes   *stream.Store[agents.Node]
	pods    *stream.Store[agents.Pod]
	tainted map[string]bool // nodes with the taint; of nodeChanged
}

type params struct {
	cell.In

	Config  Config
	Agents  agents.Config
	Nodes   stream.Resource[agents.Node]
	Pods    stream.Resource[agents.Pod]
	Client  k8s.Client
	Metrics *taintMetrics
}

func newController(p params) *controller { return &controller{params: p, tainted: map[string]bool{}} }

func (c *controller) QueueOptions() []reconcile.Option {
	return []reconcile.Option{reconcile.Workers(c.Config.TaintSyncWorkers), reconcile.Backoff(firstBackoff, longestBackoff)}
}

func (c *controller) Open(ctx context.Context) (err error) {
	if c.nodes, err = c.Nodes.Store(ctx); err != nil {
		return err
	}
	c.pods, err = c.Pods.Store(ctx)
	return err
}

func (c *controller) nodeChanged(ch stream.Change[agents.Node]) []slim.Key {
	if ch.Kind == stream.Upsert && ch.Object.HasTaint(c.Agents.AgentNotReadyTaintKey) {
		c.tainted[ch.Key.Name] = true
	} else {
		delete(c.tainted, ch.Key.Name)
	}
	c.Metrics.Waiting.Set(float64(len(c.tainted)))
	return c.keysOf(ch.Key.Name)
}

func (c *controller) podChanged(ch stream.Change[agents.Pod]) []slim.Key {
	if node := ch.Object.Spec.NodeName.String(); node != "" {
		return c.keysOf(node)
	}
	return nil
}

func (c *controller) keysOf(node string) (keys []slim.Key) {
	if c.Config.taints() {
		keys = append(keys, slim.Key{Namespace: taintKeys, Name: node})
	}
	if c.Config.SetCiliumIsUpCondition {
		keys = append(keys, slim.Key{Namespace: conditionKeys, Name: node})
	}
	return keys
}

// Reconcile writes the taints or the condition of a node.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	node, ok := c.nodes.Get(slim.Key{Name: key.Name})
	if !ok {
		return reconcile.Result{Reason: noNode}, nil
	}
	agent := agents.StateOn(c.pods, key.Name)
	if key.Namespace == conditionKeys {
		return c.reconcileCondition(ctx, node, agent)
	}
	do, reason := taintAction(c.Config, c.Agents.AgentNotReadyTaintKey, node, agent)
	if do == nothing {
		return reconcile.Result{Reason: reason}, nil
	}
	return reconcile.Result{}, c.patchTaints(ctx, node, do)
}

func (c *controller) patchTaints(ctx context.Context, node *agents.Node, do action) error {
	key := c.Agents.AgentNotReadyTaintKey
	patch, err := taintPatch(node.Spec.Taints, taintsAfter(do, key, node.Spec.Taints))
	if err != nil {
		return err
	}
	ref := k8s.Ref{Resource: agents.Nodes.Resource(), Name: node.Name}
	_, err = c.Client.Patch(ctx, ref, patch, k8s.PatchedValue{
		Field: "spec.taints of " + key, From: do == removeTaint, To: do == setTaint,
		In: func(u *unstructured.Unstructured) any { return storesTaint(u, key) },
	})
	return c.done(do, node, err)
}

// reconcileCondition sets the condition of a node whose agent is ready. Otherwise it stays as it is.
func (c *controller) reconcileCondition(ctx context.Context, node *agents.Node, agent agents.State) (reconcile.Result, error) {
	is := conditionOf(node)
	switch {
	case is == isUp:
		return reconcile.Result{}, nil
	case agent != agents.Ready:
		return reconcile.Result{Reason: reasons[agent]}, nil
	}
	patch, err := conditionPatch(time.Now())
	if err != nil {
		return reconcile.Result{}, err
	}
	ref := k8s.Ref{Resource: agents.Nodes.Resource(), Name: node.Name, Subresource: "status"}
	_, err = c.Client.Patch(ctx, ref, patch, k8s.PatchedValue{
		Field: "status.conditions of " + string(conditionType), From: is, To: isUp,
		In: func(u *unstructured.Unstructured) any { return storedCondition(u) },
	})
	return reconcile.Result{}, c.done(setCondition, node, err)
}

// done counts a write, and completes its error.
func (c *controller) done(do action, node *agents.Node, err error) error {
	c.Metrics.count(do, err)
	switch {
	case err == nil:
		return nil
	case do == setCondition:
		return fmt.Errorf("setting the condition %s of Node %s: %w", conditionType, node.Name, err)
	case do == setTaint:
		return fmt.Errorf("setting the taint %s of Node %s: %w", c.Agents.AgentNotReadyTaintKey, node.Name, err)
	}
	return fmt.Errorf("removing the taint %s of Node %s: %w", c.Agents.AgentNotReadyTaintKey, node.Name, err)
}

// storesTaint reports whether a stored Node has a taint with the key.
func storesTaint(u *unstructured.Unstructured, key string) bool {
	taints, _, _ := unstructured.NestedSlice(u.Object, "spec", "taints")
	for _, t := range taints {
		if taint, _ := t.(map[string]any); taint["key"] == key {
			return true
		}
	}
	return false
}

// storedCondition is the condition of a stored Node.
func storedCondition(u *unstructured.Unstructured) (c condition) {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, e := range all {
		if m, _ := e.(map[string]any); m["type"] == string(conditionType) {
			c.Status, _ = m["status"].(string)
			c.Reason, _ = m["reason"].(string)
		}
	}
	return c
}
