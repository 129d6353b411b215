// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/cluster/release"
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
	// unreadableRetry is how often a Gateway is reconciled while a route cannot be decoded, or BackendTLSPolicies are not known: the
	// role may turn out not to allow them.
	unreadableRetry = time.Minute
)

// options are those of a translation for a Service.
func (c *controller) options(of slim.Key) envoy.Options {
	connections := c.Envoy.Connections(c.Cluster)
	connections.Forwarded = !c.Config.GatewayAPIUseRemoteAddress
	return envoy.Options{
		Service: envoy.Name{Namespace: of.Namespace, Name: of.Name}, SecretsNamespace: c.Envoy.GatewayAPISecretsNamespace, Copies: c.copies,
		FirstWins: true, ByAge: !c.Config.GatewayAPIJoinNamespaces, PortHosts: true, ALPN: c.Config.EnableGatewayAPIALPN, ProxyProtocol: c.Config.EnableGatewayAPIProxyProtocol,
		AppProtocol: c.Config.EnableGatewayAPIAppProtocol, XFFNumTrustedHops: c.Config.GatewayAPIXFFNumTrustedHops,
		RedirectsByScheme: release.RedirectsByScheme.In(c.Cluster.Release), HostsOfTCP: release.HostsOfTCP.In(c.Cluster.Release),
		Connections: connections, Checked: true, MostProgram: int64(c.Envoy.MaxRegexProgramSize),
	}
}

// awaiting are options for a translation that waits for the turn of large objects before it needs much memory.
func awaiting(ctx context.Context, o envoy.Options) envoy.Options {
	o.Await = func(bytes int) error { return k8s.AwaitTurn(ctx, bytes) }
	return o
}

// reconcileGateway writes what a Gateway consists of, and its status.
func (c *controller) reconcileGateway(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	g, exists := c.gateways.Get(key)
	if exists && !g.DeletionTimestamp.IsZero() && len(c.foreignKeysOf(g)) > 0 { // what that depends on stays known meanwhile
		return c.leave(ctx, g, reconcile.Result{Reason: isGone})
	}
	if !exists || !g.DeletionTimestamp.IsZero() {
		c.drop(key)
		c.placeholders.Drop(key)
		return reconcile.Result{Reason: isGone}, nil
	}
	placed, awaitsRole := c.placeholders.Need(key)
	cl, exists := c.classes.Get(slim.Key{Name: string(g.Spec.GatewayClassName)})
	if !exists {
		return c.leave(ctx, g, reconcile.Result{Reason: noClass})
	}
	if cl.Spec.ControllerName != controllerName {
		c.drop(key)
		if placed == nil {
			return reconcile.Result{RequeueAfter: awaitsRole, Reason: isWaiting}, nil
		}
		return reconcile.Result{Reason: notOurs}, c.remove(ctx, g, placed)
	}
	if placed == nil {
		return reconcile.Result{RequeueAfter: awaitsRole, Reason: isWaiting}, nil
	}
	if g.IsCut() { // what there is of it stays
		text := "It is not served: " + g.CutError().Error()
		return c.leave(ctx, g, reconcile.Result{Reason: isLarge}, c.refuse(ctx, g, condition.False(gatewayv1.GatewayReasonInvalid, text)))
	}
	s := c.state(key)
	if pause := writePause - c.Deps.Plan.Now().Sub(s.written); pause > 0 {
		return reconcile.Result{RequeueAfter: pause, Reason: isPaused}, nil
	}
	policiesKnown, err := c.needPolicies(ctx, key)
	if err != nil || !policiesKnown {
		return reconcile.Result{RequeueAfter: unreadableRetry, Reason: isWaiting}, err
	}
	config, problem, known := c.parametersOf(cl, key)
	routesKnown, err := c.needOptionalRoutes(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	sets, err := c.needListenerSets(ctx, key)
	waiting := false
	lookup := c.lookup(key, &waiting)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !known || !routesKnown || !sets.known():
		return c.awaiting(sets), nil
	case problem != "":
		return c.leave(ctx, g, reconcile.Result{Reason: problem}, c.refuseParameters(ctx, g, cl, problem))
	case c.hidesRoute(func(namespace string) bool { return sets.mayServe(g, namespace, lookup) }):
		return c.leave(ctx, g, reconcile.Result{RequeueAfter: unreadableRetry, Reason: unreadable})
	case sets.hidesOneOf(g, lookup):
		return c.leave(ctx, g, reconcile.Result{RequeueAfter: unreadableRetry, Reason: unreadableSet})
	}
	all := sets.of(key)
	routes := c.routes(routesByParent, key)
	for _, set := range all {
		routes = append(routes, c.routes(routesByParent, set.id())...)
	}
	routes = onceByID(routes)
	fleet, known := c.fleet(key, hasSeveralOfTLS(g, all) || anyAsks(routes))
	if !known {
		return c.awaiting(sets), nil
	}
	s.useGRPCWeb(!config.noGRPCWeb)
	s.planner.joins = c.Config.GatewayAPIJoinNamespaces
	taken, asked := c.takenPorts(g, sets, lookup)
	s.planner.oneListener, s.planner.taken = !release.InAll(release.ListenersPerPort, fleet), taken
	planned := func() *gatewayPlan { return s.planner.plan(g, all, routes, lookup) }
	plan := planned()
	if waiting {
		return reconcile.Result{Reason: isWaiting}, nil
	}
	desired := c.desiredConfig(ctx, g, s, plan, planned)
	if waiting {
		return reconcile.Result{Reason: isWaiting}, nil
	}
	plan = desired.plan
	c.publish(g, s, plan)
	c.reportPorts(g, taken, asked)
	result, err := c.write(ctx, g, s, desired, config.service, placed)
	if err != nil {
		return reconcile.Result{}, err
	}
	status, err := c.writeStatus(ctx, g, s, plan, plan.result(g, result))
	if result.failure != "" && status.Reason == "" {
		status.Reason = isRefused
	}
	if status.RequeueAfter == 0 {
		status.RequeueAfter = sets.result("").RequeueAfter
	}
	if status.RequeueAfter == 0 {
		status.RequeueAfter = result.again
	}
	if result.more {
		status.RequeueAfter = afterPass
	}
	return status, err
}

// onceByID removes what is there twice: a route may refer to a Gateway and to its ListenerSets.
func onceByID(all []*route.Route) []*route.Route {
	seen := make(map[slim.Key]bool, len(all))
	return slices.DeleteFunc(all, func(r *route.Route) bool {
		id := r.ID()
		was := seen[id]
		seen[id] = true
		return was
	})
}

// drop forgets a Gateway that is not served here any more.
func (c *controller) drop(key slim.Key) {
	c.reports.Forget(key)
	c.programmed.Set(key, "")
	c.dropOptionalRoutes(key)
	c.dropPolicies(key)
	c.sets.Drop(key)
	c.imports.Drop(key)
	c.classConfigs.Drop(key)
	c.dropNodes(key)
	c.agents.Drop(key)
	c.backends.Drop(key)
	c.portSlices.Drop(key)
	c.occupied.Keep(key, nil)
	c.refused.forget(key)
	c.conflicts.Set(key, 0, "")
	c.forget(key)
}

// write writes the Service, its placeholder and the CiliumEnvoyConfig of a Gateway.
func (c *controller) write(ctx context.Context, g *gateway, s *state, desired desiredConfig, config serviceConfig, placed *envoyres.Placed[duty]) (outcome, error) {
	plan := desired.plan
	at := serviceKey(g.Key())
	c.reportClientTLS(g)
	var o outcome
	if ports := listener.PortsOf(plan.listeners); len(ports) > 0 {
		err := o.waits(c.writeService(ctx, g, s, desiredService{
			ports: ports, hasBackends: len(plan.backends) > 0, weighted: plan.hasWeights(), kept: unserved(plan.listeners), hostNetwork: c.Config.GatewayAPIHostNetworkEnabled, atNodes: release.GatewaysAtNodes.In(c.Cluster.Release),
			policy: c.Config.GatewayAPIServiceExternalTP, config: config,
		}, placed))
		switch {
		case err == nil:
			err = errors.Join(o.waits(c.writeConfig(ctx, g, s, desired)), o.occupied(c.writePorts(ctx, g, plan, placed, &o.more)))
		case c.hasLostPort(desired): // which others may wait for: it is given up all the same
			if err := o.waits(c.writeConfig(ctx, g, s, desired)); err != nil && !envoyres.ConcernsUser(err) {
				return o, err
			}
		}
		if envoyres.ConcernsUser(err) {
			o.failure = err.Error()
		} else if err != nil && !envoyres.IsTerminating(err) {
			if apierrors.IsInvalid(err) { // what the Gateway asks for may be accepted later
				c.reports.Set(route.KindService, aboutGateway(g), envoyres.Notice{Reason: "NotWritten", Message: err.Error(), Degrades: true})
			}
			return o, err
		}
	} else if err := errors.Join(c.deleteConfig(k8s.WithManySources(ctx), g), o.occupied(c.writePorts(ctx, g, plan, placed, &o.more))); err != nil {
		return o, err
	}
	if o.failure != "" {
		c.reports.Set(route.KindService, aboutGateway(g), envoyres.Notice{Reason: "NotWritten", Message: o.failure, Degrades: true})
	} else {
		c.reports.Set(route.KindService, aboutGateway(g))
	}
	c.setNodeAddresses(&o, g, config)
	if has, exists := c.services.Get(at); exists && has.Controller.Reference().UID == g.UID {
		o.service = has
	}
	return o, nil
}

// desiredObjects is all that the Service of a Gateway and its placeholder depend on.
type desiredObjects struct {
	labels, annotations map[string]string
	ips                 []string
	desiredService
}

// meta is what the Service is to have of the labels and annotations that the Gateway asks for. What the Gateway asks for goes before what follows from its addresses.
func (d desiredObjects) meta() envoyres.Meta {
	labels, annotations := maps.Clone(d.labels), d.desiredService.annotations(d.ips)
	delete(labels, gatewayLabel)
	delete(labels, owningLabel)
	maps.Copy(annotations, d.annotations)
	return envoyres.Meta{Labels: labels, Annotations: annotations}
}

// writeService writes the Service of a Gateway and its placeholder.
func (c *controller) writeService(ctx context.Context, g *gateway, s *state, d desiredService, placed *envoyres.Placed[duty]) error {
	key, owner := serviceKey(g.Key()), ownerOf(g)
	labels, annotations := metadataOf(g)
	labels[owningLabel] = labels[gatewayLabel]
	ips, _ := staticAddresses(g)
	desired := desiredObjects{labels, annotations, ips, d}
	if last, ok := s.service.Desired().(desiredObjects); ok && reflect.DeepEqual(last.desiredService, d) {
		ctx = k8s.WithOneSource(ctx) // ListenerSets and routes of others, which change the ports, do not wait
	}
	err := envoyres.WriteObject(ctx, c.Client, envoyres.OwnedObject[corev1.Service]{
		Resource: services.Resource(), Kind: route.KindService, Key: key, Owner: owner, Label: owningLabel, Value: labels[owningLabel],
		Edit: func(to *corev1.Service, isNew bool) {
			last, _ := s.service.Desired().(desiredObjects)
			envoyres.AddMeta(to, map[string]string{gatewayLabel: labels[gatewayLabel], owningLabel: labels[owningLabel]}, nil)
			envoyres.CopyMeta(to, isNew, desired.meta(), last.meta())
			envoyres.SetFamilies(to, isNew, c.Cluster)
			d.setRangesPolicy(to, annotations)
			d.set(to, isNew)
		},
		Desired: desired, Last: &s.service,
	}, envoyres.Cached(c.services, key))
	if err != nil {
		return err
	}
	if d.hasBackends { // EndpointSlices have them
		return nil
	}
	return placed.Write(ctx, c.Client, envoyres.Placeholder{
		Service: key, Owner: owner, Label: owningLabel, Value: labels[owningLabel], Labels: labels, Annotations: annotations,
		Desired: desired, Last: &s.placeholder,
	})
}

// desiredConfig is the CiliumEnvoyConfig of a Gateway, by its plan.
type desiredConfig struct {
	plan      *gatewayPlan
	isCurrent bool // it is there, and was not translated again
	envoyres.Desired
	packed
	err error
}

// desiredConfig translates a plan unless the CiliumEnvoyConfig is what came of it. again plans the Gateway with less. What needs much memory has the turn of large objects
// meanwhile, and no longer: requests have turns of their own (K8S-26).
func (c *controller) desiredConfig(ctx context.Context, g *gateway, s *state, plan *gatewayPlan, again func() *gatewayPlan) desiredConfig {
	labels, annotations := metadataOf(g)
	key, other := configNames(g.Key()).Choose(c.configs, ownerOf(g), c.Cluster.Release)
	d := desiredConfig{plan: plan, Desired: envoyres.Desired{Key: key, Owner: ownerOf(g), NodeSourceAddress: true, Labels: labels, Annotations: annotations}}
	d.LabelLater = !release.SourceAddressLabels.In(c.Cluster.Release)
	d.Spec.Digest = s.translated.digest
	if d.isCurrent = s.translated.of == plan.assembly && other == (slim.Key{}) && envoyres.IsCurrent(c.configs, d.Desired); d.isCurrent {
		return d
	}
	ctx, release := k8s.WithTurn(ctx)
	defer release()
	o := awaiting(ctx, c.options(serviceKey(g.Key())))
	o.HostNetwork, o.PerPort, o.NoGRPCWeb = c.Config.hostNetwork(c.Cluster), !plan.oneListener, s.noGRPCWeb
	d.plan, d.packed, d.err = pack(s, plan, o, again)
	d.Spec = d.packed.spec
	return d
}

// writeConfig writes the CiliumEnvoyConfig of a Gateway.
func (c *controller) writeConfig(ctx context.Context, g *gateway, s *state, d desiredConfig) error {
	if d.isCurrent || d.err != nil {
		return d.err
	}
	var notices []envoyres.Notice
	for _, p := range d.problems {
		notices = append(notices, envoyres.Notice{Reason: "NotTranslated", Message: p.Source.String() + ": " + p.Message})
	}
	c.reports.Set(route.KindGateway, aboutGateway(g), notices...)
	if d.isEmpty {
		return c.deleteConfig(k8s.WithManySources(ctx), g)
	}
	s.translated = translated{d.plan.assembly, d.Spec.Digest}
	if has, exists := c.configs.Get(d.Key); exists && has.Spec.Digest == d.Spec.Digest {
		ctx = k8s.WithOneSource(ctx) // its labels and annotations alone are others, which are the Gateway's
	}
	written, err := configNames(g.Key()).Write(ctx, c.Client, c.configs, d.Desired, c.Cluster.Release)
	if written {
		s.written = c.Deps.Plan.Now()
	}
	return err
}

// deleteConfig deletes the configuration of a Gateway. Where its routes, which are of many namespaces, leave none, the context says that.
func (c *controller) deleteConfig(ctx context.Context, g *gateway) error {
	return configNames(g.Key()).Delete(ctx, c.Client, c.configs, ownerOf(g))
}

// remove deletes what a Gateway owns that is of another class now.
func (c *controller) remove(ctx context.Context, g *gateway, placed *envoyres.Placed[duty]) error {
	errs := []error{c.deleteConfig(ctx, g)}
	key := serviceKey(g.Key())
	if s, exists := c.services.Get(key); exists && s.Controller.Reference().UID == g.UID {
		errs = append(errs, k8s.Delete(ctx, c.Client, k8s.Ref{Resource: services.Resource(), Namespace: key.Namespace, Name: key.Name, UID: s.UID.API()}))
	}
	return errors.Join(append(errs, placed.Remove(ctx, c.Client, key, g.UID.API()))...)
}

// statusTime is how long the statuses of a Gateway and of its ListenerSets are written before it is looked at again: they may be many, and others
// wait for what changes meanwhile.
const statusTime = 500 * time.Millisecond

// writeStatus writes the status of a Gateway and of its ListenerSets, each if it differs. Numbers of routes alone are not written
// more than once a second.
func (c *controller) writeStatus(ctx context.Context, g *gateway, s *state, plan *gatewayPlan, r gatewayResult) (result reconcile.Result, err error) {
	c.programmed.Set(g.Key(), stateOf(r.programmed.OK))
	if !r.programmed.OK {
		result.Reason = "not programmed: " + r.programmed.Reason + ": " + r.programmed.Message
	}
	now := c.Deps.Plan.Now()
	all := []statusWrite{writeOf(statusRef(gateways.Resource(), &g.ObjectMeta), &g.Status, func(to *gatewayv1.GatewayStatus, counts bool) bool {
		return plan.applyStatus(to, r, g.Generation, counts, metav1.NewTime(now))
	})}
	for _, set := range plan.sets {
		if set.of.unreadStatus || set.of.CannotDecode("status") {
			continue
		}
		of := set.result(r)
		all = append(all, writeOf(statusRef(listenerSets.Resource(), &set.of.ObjectMeta), &set.of.Status, func(to *gatewayv1.ListenerSetStatus, counts bool) bool {
			return set.applyStatus(to, of, plan.attached, counts, metav1.NewTime(now))
		}))
	}
	var errs []error
	pause := countPause - now.Sub(s.counted)
	began := time.Now()
	for _, w := range all {
		switch {
		case !w.differs(true):
			continue
		case time.Since(began) > statusTime:
			result.RequeueAfter = time.Millisecond
			return result, errors.Join(errs...)
		case pause > 0 && !w.differs(false):
			result.RequeueAfter = pause
			continue
		}
		s.counted = now
		if err := w.write(ctx, c.Client); k8s.IsNotFound(err, w.ref) {
			result.RequeueAfter = countPause // unless its deletion is seen before
		} else {
			errs = append(errs, err)
		}
	}
	return result, errors.Join(errs...)
}

// refuseParameters says on a Gateway that the parameters of its class are not valid. What is served stays, and so does all else that its
// status says (GW-2).
func (c *controller) refuseParameters(ctx context.Context, g *gateway, cl *class, problem string) error {
	return c.refuse(ctx, g, condition.False(gatewayv1.GatewayReasonInvalidParameters, messageOf(problem, cl.Spec.ParametersRef)))
}

// refuse writes that a Gateway is not accepted.
func (c *controller) refuse(ctx context.Context, g *gateway, accepted condition.Condition) error {
	now := metav1.NewTime(c.Deps.Plan.Now())
	w := writeOf(statusRef(gateways.Resource(), &g.ObjectMeta), &g.Status, func(to *gatewayv1.GatewayStatus, _ bool) bool {
		return setCondition(&to.Conditions, string(gatewayv1.GatewayConditionAccepted), accepted, g.Generation, now)
	})
	if !w.differs(true) {
		return nil
	}
	if err := w.write(ctx, c.Client); !k8s.IsNotFound(err, w.ref) {
		return err
	}
	return nil
}

// statusWrite is a status that is written if it differs.
type statusWrite struct {
	ref     k8s.Ref
	differs func(counts bool) bool
	write   func(context.Context, k8s.Client) error
}

// writeOf is the write of a status, which apply sets; see [gatewayPlan.applyStatus].
func writeOf[T any, P interface {
	*T
	DeepCopy() *T
}](ref k8s.Ref, has P, apply func(to *T, counts bool) bool) statusWrite {
	return statusWrite{
		ref:     ref,
		differs: func(counts bool) bool { return apply(has.DeepCopy(), counts) },
		write: func(ctx context.Context, client k8s.Client) error {
			return editStatus(ctx, client, ref, func(to *T) { apply(to, true) })
		},
	}
}

func statusRef(resource schema.GroupVersionResource, m *route.ObjectMeta) k8s.Ref {
	return k8s.Ref{Resource: resource, Namespace: m.Namespace.String(), Name: m.Name, Subresource: "status", UID: m.UID.API()}
}

func aboutGateway(g *gateway) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: gatewayv1.GroupVersion.String(), Kind: route.KindGateway, Namespace: g.Namespace.String(), Name: g.Name, UID: g.UID.API(),
	}
}
