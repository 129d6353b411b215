// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicel7

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// controller writes the CiliumEnvoyConfig of each Service that is selected.
type controller struct {
	params
	services *stream.Store[service]
	configs  *stream.Store[envoyres.Object]
	reports  *envoyres.Reports
	states   *metrics.States[slim.Key] // of Services that are selected
	agents   *envoyres.Fleet[duty]
}

type params struct {
	cell.In

	Config      Config
	Envoy       envoyres.Config
	Cluster     cluster.Config
	Release     release.Configured
	Services    stream.Resource[service]
	Configs     stream.Resource[envoyres.Object]
	Client      k8s.Client
	Permissions *k8s.Permissions
	Events      *k8s.Events
	Metrics     *serviceMetrics
	Health      health.Reporter
	Log         *slog.Logger
}

func newController(p params) *controller {
	return &controller{
		params: p, agents: envoyres.NewFleet[duty](p.Release, p.Permissions), reports: envoyres.NewReports("Service", p.Events, p.Log, p.Health),
		states: metrics.NewStates[slim.Key](p.Metrics.Services, stateServed, stateSkipped, stateConflict),
	}
}

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) (err error) {
	if c.services, err = c.Services.Store(ctx); err != nil {
		return err
	}
	c.configs, err = c.Configs.Store(ctx)
	return err
}

// serviceChanged is the Service, if it is selected or was.
func (c *controller) serviceChanged(ch stream.Change[service]) []slim.Key {
	if _, has := c.configs.Get(configKey(ch.Key)); has || isSelected(ch.Object, c.Config) || unknownMode(ch.Object) != nil || c.states.Get(ch.Key) != "" {
		return []slim.Key{ch.Key}
	}
	return nil
}

// configChanged is the Service of a CiliumEnvoyConfig.
func (c *controller) configChanged(ch stream.Change[envoyres.Object]) []slim.Key {
	if key, ok := serviceKey(ch.Key); ok {
		return []slim.Key{key}
	}
	return nil
}

func (c *controller) agentsOnDemand() *reconcile.OnDemand[envoyres.Agent[duty]] {
	return &c.agents.OnDemand
}

// agentChanged is the Services with several ports, if the release of an agent has changed.
func (c *controller) agentChanged(ch stream.Change[envoyres.Agent[duty]]) []slim.Key {
	return c.agents.Changed(ch)
}

// Why nothing is written.
const (
	isGone      = "none: the Service does not exist, garbage collection deletes what it owned"
	isDeleted   = "none: the Service is being deleted"
	notSelected = "none: the Service has neither the annotation service.cilium.io/lb-l7: enabled nor a port of --loadbalancer-l7-ports"
	isSkipped   = "none: agents cannot redirect the Service, its Events name the reason"
	isWaiting   = "waits: the releases of the agents are not known yet"
	isLarge     = "none: the large objects of the namespace of the Service need more memory than there is for them; what there is stays"
	isForeign   = "none: the CiliumEnvoyConfig of that name is not the Service's"
)

// Reconcile brings the CiliumEnvoyConfig of a Service to its desired state.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	s, exists := c.services.Get(key)
	switch {
	case !exists:
		c.forget(key)
		return reconcile.Result{Reason: isGone}, nil
	case !s.DeletionTimestamp.IsZero():
		return reconcile.Result{Reason: isDeleted}, nil
	case s.IsCut():
		c.report(s, stateSkipped, []envoyres.Notice{{Reason: "LeftOut", Message: "it is not served, and what there is stays: " + s.CutError().Error(), Degrades: true}})
		return reconcile.Result{Reason: isLarge}, nil
	case !isSelected(s, c.Config):
		if unknown := unknownMode(s); unknown != nil {
			c.report(s, stateSkipped, unknown)
		} else {
			c.forget(key)
		}
		return reconcile.Result{Reason: notSelected}, envoyres.Delete(ctx, c.Client, c.configs, configKey(key), ownerOf(s))
	}
	p := planFor(s, c.Config)
	if !p.serves {
		c.agents.Drop(key)
		c.report(s, stateSkipped, p.notices)
		return reconcile.Result{Reason: isSkipped}, envoyres.Delete(ctx, c.Client, c.configs, configKey(key), ownerOf(s))
	}
	fleet, known := c.agents.Of(key, p.mayBeApart() && release.ListenersPerPort.In(c.Cluster.Release))
	if !known {
		return reconcile.Result{RequeueAfter: c.agents.Pause(), Reason: isWaiting}, nil
	}
	p.service.PerPort = p.mayBeApart() && release.InAll(release.ListenersPerPort, fleet)
	err := c.write(ctx, s, p.service)
	if envoyres.ConcernsUser(err) {
		c.report(s, stateConflict, append(p.notices, envoyres.Notice{Reason: "NotWritten", Message: err.Error(), Degrades: true}))
		return reconcile.Result{Reason: isForeign}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	c.report(s, stateServed, p.notices)
	return reconcile.Result{}, nil
}

func (c *controller) write(ctx context.Context, s *service, of envoy.Service) error {
	spec, err := c.translate(ctx, of)
	if err != nil {
		return err
	}
	d := envoyres.Desired{Key: configKey(s.Key()), Owner: ownerOf(s), Spec: spec}
	_, err = envoyres.Write(k8s.WithOneSource(ctx), c.Client, c.configs, d)
	return err
}

// translate translates and encodes a Service. One with many ports has the turn of large objects meanwhile, and no longer (K8S-26).
func (c *controller) translate(ctx context.Context, of envoy.Service) (envoy.Encoded, error) {
	ctx, release := k8s.WithTurn(ctx)
	defer release()
	if err := k8s.AwaitTurn(ctx, of.Memory()); err != nil {
		return envoy.Encoded{}, err
	}
	spec, err := of.Translate(c.Envoy.ServiceConnections(c.Cluster))
	if err != nil {
		return envoy.Encoded{}, err
	}
	return envoy.Encode(spec)
}

// report reports the state of a Service that is selected, and what its user is to know.
func (c *controller) report(s *service, state string, notices []envoyres.Notice) {
	c.reports.Set("", corev1.ObjectReference{
		APIVersion: "v1", Kind: "Service", Namespace: s.Namespace.String(), Name: s.Name, UID: s.UID.API(),
	}, notices...)
	c.states.Set(s.Key(), state)
}

func (c *controller) forget(key slim.Key) {
	c.agents.Drop(key)
	c.reports.Forget(key)
	c.states.Set(key, "")
}
