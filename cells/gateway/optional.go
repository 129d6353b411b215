// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// optionalKind is a kind of routes that the API server may not have, or in one of several versions.
type optionalKind struct {
	kind     string
	versions []routeVersion // the latest first
	// ifAllowed says that the kind is not served where the role does not allow it.
	ifAllowed bool
}

// routeVersion is a version of a kind of routes, which is watched while keys need it.
type routeVersion interface {
	resource() schema.GroupVersionResource
	// need returns the routes, nil until they are complete.
	need(slim.Key) routeStore
	drop(slim.Key)
}

// demanded is a routeVersion.
type demanded[T any, P routeObject[T]] struct {
	of     stream.Kind[T]
	by     *routeIndexes[T]
	demand reconcile.OnDemand[T]
}

func (d *demanded[T, P]) resource() schema.GroupVersionResource { return d.of.Resource() }
func (d *demanded[T, P]) drop(key slim.Key)                     { d.demand.Drop(key) }
func (d *demanded[T, P]) onDemand() *reconcile.OnDemand[T]      { return &d.demand }
func (d *demanded[T, P]) need(key slim.Key) routeStore {
	store := d.demand.Need(key)
	if store == nil {
		return nil
	}
	return storeOf[T, P]{store, d.by}
}

// servedRoutes are the routes of an optional kind in the version that is served.
type servedRoutes struct {
	routeStore
	resource schema.GroupVersionResource
}

// optionalRoutes are all optional kinds.
type optionalRoutes struct {
	tls      demanded[route.TLS, *route.TLS]
	tlsAlpha demanded[route.TLSAlpha, *route.TLSAlpha]
	tcp      demanded[route.TCP, *route.TCP]
	tcpAlpha demanded[route.TCPAlpha, *route.TCPAlpha]
	udp      demanded[route.UDP, *route.UDP]
	udpAlpha demanded[route.UDPAlpha, *route.UDPAlpha]

	kinds []optionalKind
}

func newOptionalRoutes() *optionalRoutes {
	o := &optionalRoutes{}
	o.tls.of, o.tls.by = tlsRoutes, newRouteIndexes[route.TLS]()
	o.tlsAlpha.of, o.tlsAlpha.by = tlsRoutesAlpha, newRouteIndexes[route.TLSAlpha]()
	o.tcp.of, o.tcp.by = tcpRoutes, newRouteIndexes[route.TCP]()
	o.tcpAlpha.of, o.tcpAlpha.by = tcpRoutesAlpha, newRouteIndexes[route.TCPAlpha]()
	o.udp.of, o.udp.by = udpRoutes, newRouteIndexes[route.UDP]()
	o.udpAlpha.of, o.udpAlpha.by = udpRoutesAlpha, newRouteIndexes[route.UDPAlpha]()
	o.kinds = []optionalKind{
		{route.KindTLS, []routeVersion{&o.tls, &o.tlsAlpha}, false},
		{route.KindTCP, []routeVersion{&o.tcp, &o.tcpAlpha}, true},
		{route.KindUDP, []routeVersion{&o.udp, &o.udpAlpha}, true},
	}
	return o
}

// servedVersion is the latest version of a kind that the API server and the role allow to serve, nil if there is none.
func (c *controller) servedVersion(ctx context.Context, kind optionalKind) (routeVersion, error) {
	d, err := c.definition(ctx, kind.versions[0].resource().GroupResource())
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(kind.versions, func(v routeVersion) bool { return slices.Contains(d.versions, v.resource().Version) })
	if i < 0 || kind.ifAllowed && c.deniesRoutes(kind.versions[i].resource()) {
		return nil, nil
	}
	return kind.versions[i], nil
}

// needOptionalRoutes has all optional kinds watched for a key, in the latest version that is served. They are not known before the
// initial state is complete, nor before it is known what the role allows.
func (c *controller) needOptionalRoutes(ctx context.Context, key slim.Key) (known bool, err error) {
	known = true
	for _, kind := range c.optional.kinds {
		v, err := c.servedVersion(ctx, kind)
		if err != nil {
			return false, err
		}
		if v != nil && kind.ifAllowed && !c.Permissions.Known() && time.Since(c.began) < roleLimit {
			known = false
			continue
		}
		known = c.needRoutes(kind, v, key) && known
	}
	return known, nil
}

// needRoutes has a kind of routes watched for a key in the version that is served, if any.
func (c *controller) needRoutes(kind optionalKind, served routeVersion, key slim.Key) (known bool) {
	for _, v := range kind.versions {
		if v != served {
			v.drop(key)
		}
	}
	if served == nil {
		c.setServed(kind.kind, servedRoutes{})
		return true
	}
	store := served.need(key)
	if store != nil {
		c.setServed(kind.kind, servedRoutes{store, served.resource()})
	}
	return store != nil
}

// deniesRoutes reports whether the role does not allow to serve routes of TCP or UDP, whose backends are in EndpointSlices.
func (c *controller) deniesRoutes(of schema.GroupVersionResource) bool {
	return slices.ContainsFunc([]string{"list", "watch"}, func(verb string) bool { return c.Permissions.Denies(verb, k8s.Ref{Resource: of}) }) ||
		c.Permissions.Denies("update", k8s.Ref{Resource: of, Subresource: "status"}) || envoyres.DeniesSlices(c.Permissions)
}

func (c *controller) dropOptionalRoutes(key slim.Key) {
	for _, kind := range c.optional.kinds {
		for _, v := range kind.versions {
			v.drop(key)
		}
	}
}

// setServed sets the routes of an optional kind. Those that were seen before are reconciled: nothing was known of them then.
func (c *controller) setServed(kind string, routes servedRoutes) {
	c.mu.Lock()
	was := c.servedRoutes[kind]
	c.servedRoutes[kind] = routes
	c.mu.Unlock()
	if was.routeStore == nil && routes.routeStore != nil {
		c.refused.enqueue(routes.ids())
	}
	if was.routeStore != nil && was.routeStore != routes.routeStore { // what went while they were not watched is not seen to go
		for _, id := range was.ids() {
			c.cache.Forget(id)
		}
	}
}

// servedOf are the routes of an optional kind. The store is nil if they are not served, or not known yet.
func (c *controller) servedOf(kind string) servedRoutes {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.servedRoutes[kind]
}

// watchesRoutes has a version of a kind of routes watched while keys need it.
func watchesRoutes[T any, P routeObject[T]](of stream.Kind[T], demand func(*controller) *reconcile.OnDemand[T]) reconcile.ControllerOption[*controller] {
	return reconcile.WatchesOnDemand(of, demand, func(c *controller, ch stream.Change[T]) []slim.Key {
		return c.routeChanged(ch.Kind, P(ch.Object).Route())
	})
}
