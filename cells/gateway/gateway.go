// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

const (
	// writePause is the least time between two writes of a CiliumEnvoyConfig: what changes in it is written at once.
	writePause = 100 * time.Millisecond
	// countPause is the least time between two writes of a status in which only numbers of routes change.
	countPause = time.Second
	// unreadableRetry is how often a Gateway is reconciled while a route cannot be decoded.
	unreadableRetry = time.Minute
)

// options are those of a translation for a Service.
func (c *controller) options(of slim.Key) envoy.Options {
	return envoy.Options{
		Service: envoy.Name{Namespace: of.Namespace, Name: of.Name}, SecretsNamespace: c.Envoy.GatewayAPISecretsNamespace,
		FirstWins: true, PortHosts: true, ALPN: c.Config.EnableGatewayAPIALPN, ProxyProtocol: c.Config.EnableGatewayAPIProxyProtocol,
		AppProtocol: c.Config.EnableGatewayAPIAppProtocol, XFFNumTrustedHops: c.Config.GatewayAPIXFFNumTrustedHops,
		Timeouts: c.Envoy.Timeouts(),
	}
}

// reconcileGateway writes what a Gateway consists of, and its status.
func (c *controller) reconcileGateway(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	g, exists := c.gateways.Get(key)
	if !exists || !g.DeletionTimestamp.IsZero() {
		c.drop(key)
		return reconcile.Result{Reason: isGone}, nil
	}
	cl, exists := c.classes.Get(slim.Key{Name: string(g.Spec.GatewayClassName)})
	if !exists {
		return reconcile.Result{Reason: noClass}, nil
	}
	if cl.Spec.ControllerName != controllerName {
		c.drop(key)
		return reconcile.Result{Reason: notOurs}, c.remove(ctx, g)
	}
	s := c.state(key)
	if pause := writePause - c.Deps.Plan.Now().Sub(s.written); pause > 0 {
		return reconcile.Result{RequeueAfter: pause, Reason: isPaused}, nil
	}
	config, problem, known := c.serviceConfigOf(cl, key)
	tlsKnown, err := c.needTLSRoutes(ctx, key)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !known || !tlsKnown:
		return reconcile.Result{Reason: isWaiting}, nil
	case problem != "":
		return reconcile.Result{Reason: problem}, nil
	case c.hidesRoute():
		return reconcile.Result{RequeueAfter: unreadableRetry, Reason: unreadable}, nil
	}
	waiting := false
	plan := s.planner.plan(g, c.routes(routesByParent, key), c.asker(key, &waiting))
	if waiting {
		return reconcile.Result{Reason: isWaiting}, nil
	}
	result, err := c.write(ctx, g, s, plan, config)
	if err != nil {
		return reconcile.Result{}, err
	}
	status, err := c.writeStatus(ctx, g, s, plan, plan.result(g, result))
	if result.failure != "" && status.Reason == "" {
		status.Reason = isRefused
	}
	return status, err
}

// drop forgets a Gateway that is not served here any more.
func (c *controller) drop(key slim.Key) {
	c.reports.Forget(key)
	c.programmed.Set(key, "")
	c.dropTLSRoutes(key)
	c.imports.Drop(key)
	c.classConfigs.Drop(key)
	c.forget(key)
}

// write writes the Service, the Endpoints and the CiliumEnvoyConfig of a Gateway.
func (c *controller) write(ctx context.Context, g *gateway, s *state, plan *gatewayPlan, config serviceConfig) (outcome, error) {
	at := serviceKey(g.Key())
	var o outcome
	if ports := portsOf(plan.listeners); len(ports) > 0 {
		err := c.writeService(ctx, g, desiredService{
			ports: ports, hostNetwork: c.Config.GatewayAPIHostNetworkEnabled, policy: c.Config.GatewayAPIServiceExternalTP, config: config,
		})
		if err == nil {
			err = c.writeConfig(ctx, g, s, plan)
		}
		if envoyres.ConcernsUser(err) {
			o.failure = err.Error()
		} else if err != nil && !envoyres.IsTerminating(err) {
			return o, err
		}
	} else if err := c.deleteConfig(ctx, g); err != nil {
		return o, err
	}
	if o.failure != "" {
		c.reports.Set(kindService, aboutGateway(g), envoyres.Notice{Reason: "NotWritten", Message: o.failure, Degrades: true})
	} else {
		c.reports.Set(kindService, aboutGateway(g))
	}
	o.addressless = c.Config.GatewayAPIHostNetworkEnabled || config.Type == corev1.ServiceTypeNodePort
	if has, exists := c.services.Get(at); exists && has.Controller.Reference().UID == g.UID {
		o.service = has
	}
	return o, nil
}

// writeService writes the Service and the Endpoints of a Gateway.
func (c *controller) writeService(ctx context.Context, g *gateway, d desiredService) error {
	key, owner := serviceKey(g.Key()), ownerOf(g)
	labels, annotations := metadataOf(g)
	labels[owningLabel] = labels[gatewayLabel]
	_, exists := c.services.Get(key)
	ips, _ := staticAddresses(g)
	err := envoyres.WriteObject(ctx, c.Client, envoyres.OwnedObject[corev1.Service]{
		Resource: services.Resource(), Kind: kindService, Key: key, Owner: owner, Label: owningLabel, Value: labels[owningLabel],
		Edit: func(to *corev1.Service, isNew bool) {
			envoyres.AddMeta(to, labels, d.annotations(ips))
			envoyres.AddMeta(to, nil, annotations)
			d.set(to, isNew)
		},
	}, exists)
	if err != nil {
		return err
	}
	_, exists = c.endpoints.Get(key)
	return envoyres.WriteObject(ctx, c.Client, envoyres.OwnedObject[envoyres.CoreEndpoints]{
		Resource: owned.Resource(), Kind: "Endpoints", Key: key, Owner: owner, Label: owningLabel, Value: labels[owningLabel],
		Edit: func(to *envoyres.CoreEndpoints, _ bool) {
			envoyres.AddMeta(to, labels, annotations)
			envoyres.SetEndpoints(to)
		},
	}, exists)
}

// writeConfig writes the CiliumEnvoyConfig of a Gateway.
func (c *controller) writeConfig(ctx context.Context, g *gateway, s *state, plan *gatewayPlan) error {
	key := configKey(g.Key())
	o := c.options(key)
	o.HostNetwork = c.Config.hostNetwork(c.Cluster)
	t, err := s.translator.Translate(plan.model, o)
	if err != nil {
		return err
	}
	var notices []envoyres.Notice
	for _, p := range t.Problems {
		notices = append(notices, envoyres.Notice{Reason: "NotTranslated", Message: p.Source.String() + ": " + p.Message})
	}
	c.reports.Set(kindGateway, aboutGateway(g), notices...)
	if t.Empty {
		return c.deleteConfig(ctx, g)
	}
	spec, err := envoy.Encode(t.Spec)
	if err != nil {
		return err
	}
	labels, annotations := metadataOf(g)
	written, err := envoyres.Write(ctx, c.Client, c.configs, envoyres.Desired{
		Key: key, Owner: ownerOf(g), NodeSourceAddress: true, Labels: labels, Annotations: annotations, Spec: spec,
	})
	if written {
		s.written = c.Deps.Plan.Now()
	}
	return err
}

func (c *controller) deleteConfig(ctx context.Context, g *gateway) error {
	return envoyres.Delete(ctx, c.Client, c.configs, configKey(g.Key()), ownerOf(g))
}

// remove deletes what a Gateway owns that is of another class now.
func (c *controller) remove(ctx context.Context, g *gateway) error {
	errs := []error{c.deleteConfig(ctx, g)}
	key := serviceKey(g.Key())
	if s, exists := c.services.Get(key); exists && s.Controller.Reference().UID == g.UID {
		errs = append(errs, k8s.Delete(ctx, c.Client, k8s.Ref{Resource: services.Resource(), Namespace: key.Namespace, Name: key.Name, UID: s.UID.API()}))
	}
	if e, exists := c.endpoints.Get(key); exists && e.Controller.Reference().UID == g.UID {
		errs = append(errs, k8s.Delete(ctx, c.Client, k8s.Ref{Resource: owned.Resource(), Namespace: key.Namespace, Name: key.Name, UID: e.UID.API()}))
	}
	return errors.Join(errs...)
}

// writeStatus writes the status of a Gateway if it differs. Numbers of routes alone are not written more than once a second.
func (c *controller) writeStatus(ctx context.Context, g *gateway, s *state, plan *gatewayPlan, r gatewayResult) (reconcile.Result, error) {
	c.programmed.Set(g.Key(), stateOf(r.programmed.ok))
	now := c.Deps.Plan.Now()
	differs := func(counts bool) bool {
		status := *g.Status.DeepCopy()
		return plan.applyStatus(&status, r, g.Generation, counts, metav1.NewTime(now))
	}
	var result reconcile.Result
	if !r.programmed.ok {
		result.Reason = "not programmed: " + r.programmed.reason + ": " + r.programmed.message
	}
	if !differs(true) {
		return result, nil
	}
	if pause := countPause - now.Sub(s.counted); pause > 0 && !differs(false) {
		result.RequeueAfter = pause
		return result, nil
	}
	s.counted = now
	ref := k8s.Ref{Resource: gateways.Resource(), Namespace: g.Namespace.String(), Name: g.Name, Subresource: "status", UID: g.UID.API()}
	return result, modifyStatus(ctx, c.Client, ref, func(to *gatewayv1.GatewayStatus) {
		plan.applyStatus(to, r, g.Generation, true, metav1.NewTime(now))
	})
}

func aboutGateway(g *gateway) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: gatewayv1.GroupVersion.String(), Kind: kindGateway, Namespace: g.Namespace.String(), Name: g.Name, UID: g.UID.API(),
	}
}
