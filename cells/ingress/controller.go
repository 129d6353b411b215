// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"cmp"
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// controller serves Ingresses. A key is that of an Ingress, or sharedKey for what those share that have no load balancer of
// their own.
type controller struct {
	params
	ingresses    *stream.Store[ingress]
	classes      *stream.Store[ingressClass]
	services     *stream.Store[service]
	configs      *stream.Store[envoyres.Object]
	copies       envoy.CopyNames // nil for the plain names
	placeholders *envoyres.Placeholders[duty]
	reports      *envoyres.Reports
	shared       shared
	inputs       map[slim.Key]input         // of Ingresses; used by functions that map changes
	known        map[slim.Key][]servicePort // ports of Services that exist; used by functions that map changes
	hostPorts    envoyres.HostPortChanges   // used by functions that map changes
	owners       knownOwners
	modes        *metrics.States[slim.Key] // of Ingresses that are managed
	conflicts    *envoyres.Conflicts       // of Ingresses, and of sharedKey
	class        defaultClass
}

type params struct {
	cell.In

	Config      Config
	Envoy       envoyres.Config
	Secrets     secretref.Config
	Copies      *secretref.Names `optional:"true"` // nil where no secrets are copied
	Left        stream.Resource[secretref.Left[duty]]
	Cluster     cluster.Config
	Ingresses   stream.Resource[ingress]
	Classes     stream.Resource[ingressClass]
	Services    stream.Resource[service]
	Configs     stream.Resource[envoyres.Object]
	Client      k8s.Client
	Permissions *k8s.Permissions
	Events      *k8s.Events
	Deps        reconcile.Deps
	Metrics     *ingressMetrics
	Health      health.Reporter
	Log         *slog.Logger
}

func newController(p params) *controller {
	return &controller{
		params: p, reports: envoyres.NewReports("Ingress", p.Events, p.Log, p.Health),
		placeholders: envoyres.NewPlaceholders[duty](p.Permissions, p.Health),
		inputs:       map[slim.Key]input{}, known: map[slim.Key][]servicePort{}, hostPorts: envoyres.HostPortChanges{},
		modes:     metrics.NewStates[slim.Key](p.Metrics.Ingresses, dedicatedMode, sharedMode),
		conflicts: envoyres.NewConflicts(p.Metrics.Conflicts, p.Health, conflictsText),
	}
}

// conflictsText is what health has of conflicts.
const conflictsText = "%d Ingresses do not have a host or a port of the nodes that they ask for, since it is that of an older object of another namespace, or of a component of the cluster, at first %s; " +
	"ingress-join-namespaces shares those of others, as the original does"

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) (err error) {
	if c.ingresses, err = c.Ingresses.Store(ctx); err != nil {
		return err
	}
	if c.classes, err = c.Classes.Store(ctx); err != nil {
		return err
	}
	if c.services, err = c.Services.Store(ctx); err != nil {
		return err
	}
	if c.configs, err = c.Configs.Store(ctx); err != nil {
		return err
	}
	return c.awaitCopies(ctx)
}

// awaitCopies waits until the names of the copies of secrets are known.
func (c *controller) awaitCopies(ctx context.Context) (err error) {
	to := c.Envoy.IngressSecretsNamespace
	switch {
	case !secretref.CopiesTo(to, c.Secrets, c.Envoy, c.Cluster):
		c.copies, err = secretref.AwaitLeft(ctx, c.Left, c.Permissions, to)
	case c.Copies != nil:
		c.copies, err = c.Copies.AwaitIn(ctx, to, secretref.OfIngresses(c.Secrets, c.Envoy, c.Cluster))
	}
	return err
}

func (c *controller) slicesOnDemand() *reconcile.OnDemand[envoyres.Slice[duty]] {
	return &c.placeholders.Slices
}

func (c *controller) endpointsOnDemand() *reconcile.OnDemand[envoyres.Endpoints[duty]] {
	return &c.placeholders.Endpoints
}

// followRole has Ingresses reconciled when the role allows other placeholders than before.
func (c *controller) followRole(ctx context.Context, enqueue reconcile.Enqueue) {
	c.placeholders.Follow(ctx, enqueue)
}

// QueueOptions is called once: the configuration of all that share a load balancer goes before the status of each.
func (c *controller) QueueOptions() []reconcile.Option {
	return []reconcile.Option{reconcile.Urgent(func(key slim.Key) bool { return key == sharedKey })}
}

// sharedKey is the key of the shared load balancer: no Ingress is without a namespace.
var sharedKey = slim.Key{Name: sharedMode}

// Synced is called when all is known: what Ingresses share may be there without any of them.
func (c *controller) Synced(context.Context) []slim.Key {
	c.logHostPorts()
	return []slim.Key{sharedKey}
}

// find is what there is of a port of a Service. One that cannot be decoded, or is too large, has all ports.
func (c *controller) find(of backendPort) found {
	key := slim.Key{Namespace: of.Namespace, Name: of.Name.Name}
	s, known := c.services.Get(key)
	switch {
	case known && !s.IsCut() && !s.Spec.has(of.port):
		return withoutPort
	case known, c.services.Hides(key):
		return withPort
	}
	return noService
}

// Why nothing is written.
const (
	isGone     = "none: the Ingress does not exist, garbage collection deletes what it owned"
	isDeleted  = "none: the Ingress is being deleted"
	notManaged = "none: the Ingress is of another class"
	isEmpty    = "none: the Ingress has no rule or backend that can be served"
	isLarge    = "none: the large objects of the namespace of the Ingress need more memory than there is for them; what there is of its load balancer stays"
	isUnnamed  = "none: the name of the Ingress is too long for that of a Service, or has dots"
	isRefused  = "none: an object of the name of one of the Ingress's is another's, or its configuration is too large"
	noPort     = "none: the port of the nodes is another's"
	noShared   = "none: no Ingress shares a load balancer"
	isPaused   = "waits: it was written just now"
	unreadable = "waits: an Ingress cannot be decoded"
	isWaiting  = "waits: EndpointSlices or Endpoints of Ingresses are not known yet"
)

// Reconcile brings what an Ingress needs to its desired state.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	if key == sharedKey {
		r, err := c.reconcileShared(ctx)
		return c.whileClassIsAway(r), err
	}
	r, err := c.reconcileIngress(ctx, key)
	return c.whileClassIsAway(r), err
}

func (c *controller) reconcileIngress(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	i, exists := c.ingresses.Get(key)
	if !exists {
		c.forget(key)
		c.placeholders.Drop(key)
		return reconcile.Result{Reason: isGone}, nil
	}
	if !i.DeletionTimestamp.IsZero() {
		c.placeholders.Drop(key)
		return reconcile.Result{Reason: isDeleted}, nil
	}
	placed, awaitsRole := c.placeholders.Need(key)
	if placed == nil {
		return reconcile.Result{RequeueAfter: awaitsRole, Reason: isWaiting}, nil
	}
	if !isManaged(i, c.byDefault()) {
		c.forget(key)
		return reconcile.Result{Reason: notManaged}, c.removeDedicated(ctx, i, placed)
	}
	s := settingsOf(i, c.Config)
	if s.shared {
		c.modes.Set(key, sharedMode)
		c.conflicts.Set(key, 0, "")
		c.reports.Set(dedicatedMode, aboutIngress(i))
		if err := c.removeDedicated(ctx, i, placed); err != nil {
			return reconcile.Result{}, err
		}
		return reconcile.Result{}, c.writeStatus(ctx, i, c.sharedService())
	}
	c.modes.Set(key, dedicatedMode)
	return c.reconcileDedicated(ctx, i, s, placed)
}

// forget forgets an Ingress that is not there, or not managed.
func (c *controller) forget(key slim.Key) {
	c.reports.Forget(key)
	c.modes.Set(key, "")
	c.conflicts.Set(key, 0, "")
}

// sharedService is the Service of the shared load balancer.
func (c *controller) sharedService() slim.Key {
	return slim.Key{Namespace: cmp.Or(c.Cluster.K8sNamespace, "kube-system"), Name: c.Config.IngressSharedLBServiceName}
}

// writeStatus copies the addresses of a Service to an Ingress. Without the Service, or those of one that is cut, the status stays.
func (c *controller) writeStatus(ctx context.Context, i *ingress, from slim.Key) error {
	s, exists := c.services.Get(from)
	if !exists || s.IsCut() && len(s.Status.LoadBalancer.Ingress) == 0 { // its status may not be kept
		return nil
	}
	want := statusOf(s)
	if equalStatus(i.Status.LoadBalancer.Ingress, want) {
		return nil
	}
	ref := k8s.Ref{Resource: ingresses.Resource(), Namespace: i.Namespace.String(), Name: i.Name, Subresource: "status", UID: i.UID.API()}
	_, err := k8s.Update(k8s.WithOneSource(ctx), c.Client, ref, func(full *networkingv1.Ingress) error {
		if !equalStatus(full.Status.LoadBalancer.Ingress, want) {
			full.Status.LoadBalancer.Ingress = want
		}
		return nil
	})
	return err
}

func aboutIngress(i *ingress) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress", Namespace: i.Namespace.String(), Name: i.Name, UID: i.UID.API(),
	}
}
