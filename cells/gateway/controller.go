// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
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

// controllerName is that of the GatewayClasses that are served here.
const controllerName gatewayv1.GatewayController = "io.cilium/gateway-controller"

// controller serves the Gateway API. A key without a namespace is that of a GatewayClass; one whose name has a kind in front,
// as route.KeyOf makes them, is that of a route, of a Service with routes, of a ListenerSet, of a CiliumGatewayClassConfig, or of a
// BackendTLSPolicy; others are Gateways.
type controller struct {
	params
	classes    *stream.Store[class]
	gateways   *stream.Store[gateway]
	http       *stream.Store[route.HTTP]
	grpc       *stream.Store[route.GRPC]
	grants     *stream.Store[grant]
	services   *stream.Store[service]
	namespaces *stream.Store[namespace]
	secrets    *stream.Store[secret]
	configs    *stream.Store[envoyres.Object]
	installed  *stream.Store[definition]
	copies     envoy.CopyNames // nil for the plain names

	optional     *optionalRoutes
	imports      reconcile.OnDemand[serviceImport]
	classConfigs reconcile.OnDemand[classConfig]
	nodes        reconcile.OnDemand[node]
	policies     reconcile.OnDemand[tlsPolicy]
	configMaps   reconcile.OnDemand[configMap]
	sets         reconcile.OnDemand[listenerSet]
	agents       *envoyres.Fleet[duty]
	backends     reconcile.OnDemand[backendSlice] // EndpointSlices of the backends of TCPRoutes and UDPRoutes
	portSlices   reconcile.OnDemand[portSlice]    // those of Gateways
	occupied     reconcile.Occupied               // names of those that others have
	placeholders *envoyres.Placeholders[duty]
	refused      *refusals
	ports        knownPorts // of the nodes
	cache        *route.Cache

	reports, meshReports *envoyres.Reports
	programmed, accepted *metrics.States[slim.Key]
	conflicts            *envoyres.Conflicts // of Gateways
	seen                 seen                // used by functions that map changes

	began        time.Time
	mu           sync.Mutex
	states       map[slim.Key]*state          // of Gateways and Services; each is used by the worker of its key
	served       map[string]servedDefinition  // by the name of the definition
	servedRoutes map[string]servedRoutes      // by optional kind
	policyStore  *stream.Store[tlsPolicy]     // nil if they are not served
	setStore     *stream.Store[listenerSet]   // nil: ListenerSets are not served, or not known yet
	importStore  *stream.Store[serviceImport] // nil: nothing has needed one yet
	oddNodes     *health.Named                // addresses of Nodes that are left out
}

// state is what is kept of a Gateway, or of a Service with routes, between two Reconciles.
type state struct {
	planner     planner
	translator  envoy.Translator
	translated  translated
	noGRPCWeb   bool // of all that was translated
	service     envoyres.Checked
	placeholder envoyres.Checked
	written     time.Time // the CiliumEnvoyConfig
	counted     time.Time // the numbers of routes in the status
	published   *assembly // what the statuses of routes say
	met         map[met]bool
	// foreignSince is since when the configuration of a Gateway that is left has a key which it may not read, zero: it has none.
	foreignSince time.Time
}

// translated is what was translated last: it is not again as long as it is what the CiliumEnvoyConfig has.
type translated struct {
	of     *assembly
	digest envoy.Digest
}

// useGRPCWeb says whether gRPC-Web is turned into gRPC. Nothing that was translated before stays when it changes.
func (s *state) useGRPCWeb(on bool) {
	if s.noGRPCWeb == on {
		s.noGRPCWeb, s.translator, s.translated = !on, envoy.Translator{}, translated{}
	}
}

type params struct {
	cell.In

	Config      Config
	Envoy       envoyres.Config
	References  secretref.Config
	Copies      *secretref.Names `optional:"true"` // nil where no secrets are copied
	Left        stream.Resource[secretref.Left[duty]]
	Cluster     cluster.Config
	Release     release.Configured
	Classes     stream.Resource[class]
	Gateways    stream.Resource[gateway]
	HTTPRoutes  stream.Resource[route.HTTP]
	GRPCRoutes  stream.Resource[route.GRPC]
	Grants      stream.Resource[grant]
	Services    stream.Resource[service]
	Namespaces  stream.Resource[namespace]
	Secrets     stream.Resource[secret]
	Configs     stream.Resource[envoyres.Object]
	Definitions stream.Resource[definition]
	Client      k8s.Client
	Permissions *k8s.Permissions
	Events      *k8s.Events
	Deps        reconcile.Deps
	Metrics     *gatewayMetrics
	Health      health.Reporter
	Log         *slog.Logger
}

// conflictsText is what health has of conflicts.
const conflictsText = "%d routes, listeners of ListenerSets and ports of the nodes of Gateways are not served, since the host or the port is that of an older object of another namespace, or of a component of the cluster, " +
	"at first of Gateway %s; gateway-api-join-namespaces shares those of others, as the original does"

func newController(p params) *controller {
	c := &controller{
		params: p, agents: envoyres.NewFleet[duty](p.Release, p.Permissions), refused: newRefusals(), optional: newOptionalRoutes(), servedRoutes: map[string]servedRoutes{}, placeholders: envoyres.NewPlaceholders[duty](p.Permissions, p.Health),
		reports: envoyres.NewReports(route.KindGateway, p.Events, p.Log, p.Health), meshReports: envoyres.NewReports(route.KindService, p.Events, p.Log, p.Health.Child("mesh")),
		programmed: metrics.NewStates[slim.Key](p.Metrics.Gateways, stateYes, stateNo),
		accepted:   metrics.NewStates[slim.Key](p.Metrics.Routes, stateYes, stateNo),
		conflicts:  envoyres.NewConflicts(p.Metrics.Conflicts, p.Health, conflictsText),
		began:      time.Now(),
		oddNodes:   health.NewNamed("Node", p.Health.Child("node-addresses")),
		seen:       newSeen(), states: map[slim.Key]*state{}, served: map[string]servedDefinition{},
	}
	c.cache = route.NewCache(c.hasRoute)
	return c
}

// Open is called before anything is watched. CustomResourceDefinitions go first: without those of the Gateway API, the others
// wait.
func (c *controller) Open(ctx context.Context) (err error) {
	return errors.Join(c.awaitCopies(ctx),
		open(ctx, c.Definitions, &c.installed), open(ctx, c.Services, &c.services), open(ctx, c.Namespaces, &c.namespaces),
		open(ctx, c.Secrets, &c.secrets), open(ctx, c.Configs, &c.configs),
		open(ctx, c.Classes, &c.classes), open(ctx, c.Gateways, &c.gateways), open(ctx, c.HTTPRoutes, &c.http),
		open(ctx, c.GRPCRoutes, &c.grpc), open(ctx, c.Grants, &c.grants),
	)
}

// awaitCopies waits until the names of the copies of secrets are known.
func (c *controller) awaitCopies(ctx context.Context) (err error) {
	to := c.Envoy.GatewayAPISecretsNamespace
	switch {
	case !secretref.CopiesTo(to, c.References, c.Envoy, c.Cluster):
		c.copies, err = secretref.AwaitLeft(ctx, c.Left, c.Permissions, to)
	case c.Copies != nil:
		c.copies, err = c.Copies.AwaitIn(ctx, to, secretref.OfGateways(c.References, c.Envoy, c.Cluster))
	}
	return err
}

func open[T any](ctx context.Context, from stream.Resource[T], to **stream.Store[T]) (err error) {
	*to, err = from.Store(ctx)
	return err
}

// Synced is called when all is known: CiliumEnvoyConfigs of Services may be there without any route.
func (c *controller) Synced(context.Context) []slim.Key { return c.meshKeys() }

// meshKeys are the Services that have a CiliumEnvoyConfig for routes.
func (c *controller) meshKeys() (keys []slim.Key) {
	for o := range c.configs.All() {
		if key, ok := meshOf(o); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// QueueOptions is called once: what Envoy is configured with goes before the status of routes, which may be thousands.
func (c *controller) QueueOptions() []reconcile.Option {
	return []reconcile.Option{reconcile.Urgent(configures)}
}

// configures reports whether a key is that of what a CiliumEnvoyConfig is written for, not of what has a status alone.
func configures(key slim.Key) bool {
	kind, _, ok := strings.Cut(key.Name, "/")
	return !ok || kind == route.KindService
}

func (c *controller) tlsOnDemand() *reconcile.OnDemand[route.TLS] { return c.optional.tls.onDemand() }
func (c *controller) tlsAlphaOnDemand() *reconcile.OnDemand[route.TLSAlpha] {
	return c.optional.tlsAlpha.onDemand()
}
func (c *controller) tcpOnDemand() *reconcile.OnDemand[route.TCP] { return c.optional.tcp.onDemand() }
func (c *controller) tcpAlphaOnDemand() *reconcile.OnDemand[route.TCPAlpha] {
	return c.optional.tcpAlpha.onDemand()
}
func (c *controller) udpOnDemand() *reconcile.OnDemand[route.UDP] { return c.optional.udp.onDemand() }
func (c *controller) udpAlphaOnDemand() *reconcile.OnDemand[route.UDPAlpha] {
	return c.optional.udpAlpha.onDemand()
}
func (c *controller) backendsOnDemand() *reconcile.OnDemand[backendSlice]    { return &c.backends }
func (c *controller) portSlicesOnDemand() *reconcile.OnDemand[portSlice]     { return &c.portSlices }
func (c *controller) importsOnDemand() *reconcile.OnDemand[serviceImport]    { return &c.imports }
func (c *controller) classConfigsOnDemand() *reconcile.OnDemand[classConfig] { return &c.classConfigs }
func (c *controller) agentsOnDemand() *reconcile.OnDemand[envoyres.Agent[duty]] {
	return &c.agents.OnDemand
}
func (c *controller) nodesOnDemand() *reconcile.OnDemand[node]               { return &c.nodes }
func (c *controller) policiesOnDemand() *reconcile.OnDemand[tlsPolicy]       { return &c.policies }
func (c *controller) configMapsOnDemand() *reconcile.OnDemand[configMap]     { return &c.configMaps }
func (c *controller) listenerSetsOnDemand() *reconcile.OnDemand[listenerSet] { return &c.sets }

func (c *controller) slicesOnDemand() *reconcile.OnDemand[envoyres.Slice[duty]] {
	return &c.placeholders.Slices
}

func (c *controller) endpointsOnDemand() *reconcile.OnDemand[envoyres.Endpoints[duty]] {
	return &c.placeholders.Endpoints
}

// followRole has Gateways reconciled when the role allows other placeholders than before.
func (c *controller) followRole(ctx context.Context, enqueue reconcile.Enqueue) {
	c.placeholders.Follow(ctx, enqueue)
}

// Why nothing is written.
const (
	isGone            = "none: the object does not exist, garbage collection deletes what it owned"
	notOurs           = "none: the GatewayClass is of another controller"
	noClass           = "none: the GatewayClass does not exist"
	isLarge           = "none: the large objects of the namespace of the Gateway, or of the Service, need more memory than there is for them; what there is of it stays"
	noRoutes          = "none: no route of the Service is accepted"
	noAncestor        = "none: nothing that is served here has a route to a Service of the policy"
	isRefused         = "none: an object of the name of one of the Gateway's is another's, or its configuration is too large"
	invalidParameters = "none: the parameters of the GatewayClass are no CiliumGatewayClassConfig with a namespace and a name"
	noConfigCRD       = "none: there is no CRD of CiliumGatewayClassConfigs, which the GatewayClass refers to"
	noConfig          = "none: the CiliumGatewayClassConfig of the GatewayClass does not exist"
	isPaused          = "waits: it was written just now"
	unreadable        = "waits: a route or a BackendTLSPolicy cannot be decoded"
	unknownRoute      = "waits: it is not known which requests a route of the Service is for, since it is too large or its matches cannot be decoded; what there is of it stays"
	unreadableSet     = "waits: a ListenerSet cannot be decoded"
	noParent          = "none: no Gateway that is served here is its parent"
	isWaiting         = "waits: objects that it refers to are not known yet"
)

// Reconcile brings an object, or what it needs, to its desired state.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	if key.Namespace == "" {
		return c.reconcileClass(ctx, key)
	}
	kind, name, ok := strings.Cut(key.Name, "/")
	if !ok {
		return c.reconcileGateway(ctx, key)
	}
	of := slim.Key{Namespace: key.Namespace, Name: name}
	switch kind {
	case route.KindService:
		return c.reconcileMesh(ctx, key, of)
	case kindClassConfig:
		return c.reconcileClassConfig(ctx, key, of)
	case kindTLSPolicy:
		return c.reconcilePolicy(ctx, key, of)
	case route.KindListenerSet:
		return c.reconcileListenerSet(ctx, of)
	}
	return c.reconcileRoute(ctx, key, kind, of)
}

// state returns what is kept of a key.
func (c *controller) state(key slim.Key) *state {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states[key] == nil {
		c.states[key] = &state{planner: planner{cache: c.cache}}
	}
	return c.states[key]
}

func (c *controller) forget(key slim.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, key)
}
