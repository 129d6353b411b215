// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/cluster/release"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var agentPods = envoyres.AgentPods[duty]()

// fleet is the releases of the agents that run, as [envoyres.Fleet] has it.
func (c *controller) fleet(key slim.Key, matters bool) (all release.Set, known bool) {
	newest := release.ListenersPerPort.In(c.Cluster.Release) && release.ExternalAuth.In(c.Cluster.Release) // else no agent of the cluster can do either
	return c.agents.Of(key, matters && newest)
}

// askFleet answers whether the Envoy of all agents asks servers about requests.
func (c *controller) askFleet(key slim.Key, waiting *bool) route.Answer {
	all, known := c.fleet(key, true)
	if !known {
		*waiting = true
		return route.Answer{}
	}
	return route.Answer{Exists: release.InAll(release.ExternalAuth, all)}
}

// anyAsks reports whether a route has a server asked about its requests.
func anyAsks(all []*route.Route) bool {
	return slices.ContainsFunc(all, func(r *route.Route) bool { return r.AsksServer() })
}

// hasSeveralOfTLS reports whether a Gateway and its ListenerSets have several ports to which TLS connections come.
func hasSeveralOfTLS(g *gateway, sets []*listenerSet) bool {
	ports := map[gatewayv1.PortNumber]bool{}
	add := func(all []gatewayv1.Listener) {
		for _, l := range all {
			if l.Protocol == gatewayv1.HTTPSProtocolType || l.Protocol == gatewayv1.TLSProtocolType {
				ports[l.Port] = true
			}
		}
	}
	add(g.Spec.Listeners)
	for _, s := range sets {
		add(s.asParent().Listeners)
	}
	return len(ports) > 1
}
