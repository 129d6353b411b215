// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// agent is what is read of the pod of an agent.
type agent struct {
	agents.PodMeta `json:"metadata"`
	Spec           agents.PodSpec `json:"spec"`
}

var agentPods = stream.Core[agent, corev1.Pod](core.WithResource("pods"))

func (a *agent) pod() *agents.Pod { return &agents.Pod{PodMeta: a.PodMeta, Spec: a.Spec} }

// podsOf yields agents as all duties know them.
func podsOf(all iter.Seq[*agent]) iter.Seq[*agents.Pod] {
	return func(yield func(*agents.Pod) bool) {
		for a := range all {
			if !yield(a.pod()) {
				return
			}
		}
	}
}

// fleet is the releases of the agents that run. They are watched while that matters to a key, and can make a difference; else it is the
// release that the cluster is configured for: the operator of a newer one comes before its agents. known is false until they are known.
func (c *controller) fleet(key slim.Key, matters bool) (all release.Set, known bool) {
	configured := release.SetOf(c.Cluster.Release)
	newest := release.ListenersPerPort.In(c.Cluster.Release) && release.ExternalAuth.In(c.Cluster.Release)
	if !matters || !newest || c.Release.Forced || c.Permissions.Denies("list", k8s.Ref{Resource: agentPods.Resource()}) {
		c.agents.Drop(key)
		return configured, true
	}
	if !c.Permissions.Known() && time.Since(c.began) < roleLimit {
		return all, false
	}
	pods := c.agents.Need(key)
	if pods == nil {
		return all, false
	}
	return agents.Running(podsOf(pods.All()), c.Release), true
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

// agentChanged is what agents make a difference to, if the release of one has changed.
func (c *controller) agentChanged(ch stream.Change[agent]) (keys []slim.Key) {
	was, known := c.seen.agents[ch.Key]
	if ch.Kind == stream.Delete {
		delete(c.seen.agents, ch.Key)
	} else {
		now := ch.Object.pod().ReleaseOr(c.Release.Release)
		if known && was == now {
			return nil
		}
		c.seen.agents[ch.Key] = now
	}
	return c.agents.Keys()
}
