// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package unmanaged

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// maxStale is how many pods of a group may in a pass turn out to be managed: the cache is behind then.
const maxStale = 5

// controller restarts pods without CiliumEndpoint.
type controller struct {
	params
	queue     *reconcile.Queue[string]
	pods      *stream.Store[pod]
	endpoints *stream.Store[ciliumio.Endpoint]
	agents    *stream.Store[agents.Pod]
	nodes     *stream.Store[agents.Node]
	restarts  restarts
	granted   <-chan struct{} // closed when the role allows deletes; nil: it may
	roleKnown func() bool
	counted   bool // at least one pass has
}

type params struct {
	cell.In

	Config    Config
	Agents    agents.Config
	Pods      stream.Resource[pod]
	Endpoints stream.Resource[ciliumio.Endpoint]
	AgentPods stream.Resource[agents.Pod]
	Nodes     stream.Resource[agents.Node]
	Client    k8s.Client
	// Permissions tell whether the role allows GETs.
	Permissions *k8s.Permissions
	Events      *k8s.Events
	Reconcile   reconcile.Deps
	Health      health.Reporter
	Metrics     *podMetrics
	Log         *slog.Logger
}

func newController(p params) *controller {
	c := &controller{params: p, restarts: newRestarts(), roleKnown: p.Permissions.Known}
	interval := time.Duration(p.Config.UnmanagedPodWatcherInterval)
	c.queue = reconcile.Periodic(p.Reconcile, "restart", "pods", interval, c.pass,
		reconcile.AwaitReady(c.open), reconcile.Backoff(interval, max(interval, time.Minute)))
	return c
}

func (c *controller) run(ctx context.Context) error { return c.queue.Run(ctx) }

// open returns when all stores are synced.
func (c *controller) open(ctx context.Context) (err error) {
	if c.endpoints, err = c.Endpoints.Store(ctx); err != nil {
		return err
	}
	if c.pods, err = c.Pods.Store(ctx); err != nil {
		return err
	}
	if c.agents, err = c.AgentPods.Store(ctx); err != nil {
		return err
	}
	c.nodes, err = c.Nodes.Store(ctx)
	return err
}

// pass restarts the first of the pods that are due, of each namespace or of all.
func (c *controller) pass(ctx context.Context, _ string) error {
	now := time.Now()
	c.restarts.expire(now)
	found := classify(c.pods.All(), facts{now, c.managed, c.unserved, c.restarts, c.Config.UnmanagedPodsOneAtATime})
	c.Metrics.Unmanaged.Set(float64(found.unmanaged))
	if text := found.String(); text != "" {
		explain.SetReason(ctx, text)
	}
	first := !c.counted
	c.counted = true
	if first && !c.roleKnown() || c.denied() { // the role is read meanwhile: a GET could be forbidden
		return nil
	}
	return c.restartEach(ctx, found.due)
}

func (c *controller) managed(p *pod) bool {
	_, ok := c.endpoints.Get(p.Key())
	return ok || c.endpoints.Hides(p.Key())
}

// unserved is why the node of a pod can create no CiliumEndpoint.
func (c *controller) unserved(p *pod) string {
	name := p.Spec.NodeName.String()
	node, ok := c.nodes.Get(slim.Key{Name: name})
	switch {
	case !ok:
		return "on Nodes that do not exist"
	case node.HasTaint(c.Agents.AgentNotReadyTaintKey):
		return "on nodes with the taint " + c.Agents.AgentNotReadyTaintKey
	case agents.StateOn(c.agents, name) != agents.Ready:
		return "on nodes without a ready agent"
	}
	return ""
}

// restartEach restarts one pod of each group.
func (c *controller) restartEach(ctx context.Context, groups [][]*pod) error {
	var errs []error
	for _, due := range groups {
		ended, err := c.restartOne(ctx, due)
		if errs = append(errs, err); ended {
			break
		}
	}
	return errors.Join(errs...)
}

// restartOne restarts the first pod for which that succeeds. A pod whose deletion is refused does not hold up others. The pass has ended
// where no other pod could be restarted, either.
func (c *controller) restartOne(ctx context.Context, due []*pod) (ended bool, err error) {
	var errs []error
	stale := 0
	for _, p := range due {
		restarted, err := c.restart(ctx, p)
		switch {
		case err == nil && restarted:
			return false, errors.Join(errs...)
		case err == nil:
			if stale++; stale == maxStale {
				return false, errors.Join(errs...)
			}
		case c.deny(err):
			return true, errors.Join(errs...)
		case !k8s.Refused(err) || k8s.HoldOf(err, 0, time.Now()).Cause != k8s.NoHold:
			return true, errors.Join(append(errs, err)...) // it would be that of the next pod, too
		default:
			errs = append(errs, err)
		}
	}
	return false, errors.Join(errs...)
}

// restart deletes a pod, or only reports it. It returns false for a pod that is managed by now, or another one.
func (c *controller) restart(ctx context.Context, p *pod) (restarted bool, err error) {
	ref := k8s.Ref{Resource: pods.Resource(), Namespace: p.Namespace.String(), Name: p.Name, UID: p.UID.API()}
	due, err := c.confirm(ctx, ref)
	if err != nil || !due {
		return false, err
	}
	age := time.Since(p.Status.StartTime.Time()).Round(time.Second)
	log := c.Log.With("pod", p.Key().String(), "node", p.Spec.NodeName.String(), "age", age)
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	if c.Config.EnableUnmanagedPodObserveOnly {
		c.restarts.pods[p.Key()] = time.Now()
		log.Info("found unmanaged pod, restarts are off")
		c.Events.Warning(about, "UnmanagedPod", fmt.Sprintf("the pod has no CiliumEndpoint %s after its start: it started before the agent of its node. It is not restarted (--%s)", age, observeFlag))
		return true, nil
	}
	err = c.Client.Delete(ctx, ref, k8s.Preconditions{UID: ref.UID})
	switch {
	case k8s.IsNotFound(err, ref), k8s.IsConflict(err, ref):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("restarting the unmanaged pod %s: %w", p.Key(), err)
	}
	c.restarts.add(p, time.Now())
	c.Metrics.Restarted.Inc()
	log.Info("restarted unmanaged pod")
	c.Events.Warning(about, "UnmanagedPodRestarted", fmt.Sprintf("the pod had no CiliumEndpoint %s after its start, although the agent of its node is ready: it was deleted, to be replaced by a managed one", age))
	return true, nil
}

// denied reports whether the role is known to allow no deletes.
func (c *controller) denied() bool {
	if c.granted == nil {
		return false
	}
	select {
	case <-c.granted:
		c.granted = nil
		c.Health.Child("restarts").Remove()
		return false
	default:
		return true
	}
}

// deny keeps an error of the role, which holds for all pods: they are counted all the same.
func (c *controller) deny(err error) bool {
	var permission *k8s.PermissionError
	if !errors.As(err, &permission) {
		return false
	}
	c.granted = permission.Granted
	c.Health.Child("restarts").Degraded("no unmanaged pod is restarted", err)
	return true
}
