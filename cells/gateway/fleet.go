// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

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

// needsOneListener reports whether an agent runs that has one listener of Envoy for all ports of a Gateway. Agents are watched while
// that makes a difference. known is false until they are known.
func (c *controller) needsOneListener(g *gateway, sets []*listenerSet) (one, known bool) {
	key := g.Key()
	canTell := release.ListenersPerPort.In(c.Cluster.Release) // else the operator of a newer release comes before its agents
	if !canTell || c.Release.Forced || !hasSeveralOfTLS(g, sets) || c.Permissions.Denies("list", k8s.Ref{Resource: agentPods.Resource()}) {
		c.agents.Drop(key)
		return !canTell, true
	}
	if !c.Permissions.Known() && time.Since(c.began) < roleLimit {
		return false, false
	}
	pods := c.agents.Need(key)
	if pods == nil {
		return false, false
	}
	return !release.InAll(release.ListenersPerPort, agents.Running(podsOf(pods.All()), c.Release)), true
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
		add(s.holder().listeners)
	}
	return len(ports) > 1
}

// agentChanged is the Gateways that agents make a difference to, if the release of one has changed.
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
	for g := range c.gateways.All() {
		if c.agents.Needs(g.Key()) {
			keys = append(keys, g.Key())
		}
	}
	return keys
}
