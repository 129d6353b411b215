// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"iter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Agent is what is read of the pod of an agent. Duty tells the streams of one duty from those of others.
type Agent[Duty any] struct {
	AgentMeta[Duty] `json:"metadata"`
	Spec            agents.PodSpec `json:"spec"`
}

// AgentMeta is the metadata of the pod of an agent.
type AgentMeta[Duty any] struct{ agents.PodMeta }

// pod is the agent as all duties know it.
func (a *Agent[Duty]) pod() *agents.Pod { return &agents.Pod{PodMeta: a.PodMeta, Spec: a.Spec} }

// AgentPods is the stream of a duty of the pods of agents, for stream.ProvideSelected with [agents.Selected].
func AgentPods[Duty any]() stream.Kind[Agent[Duty]] {
	return stream.Core[Agent[Duty], corev1.Pod](corev1.SchemeGroupVersion.WithResource("pods"))
}

// Fleet is which releases the agents run that serve what a controller configures. The agents are watched while that matters to a key and can make a
// difference: some abilities have only agents of the newest release, and one older agent is enough for all to do without. It is a field of the
// controller. Its methods are safe for concurrent use, but for Changed.
type Fleet[Duty any] struct {
	// OnDemand is what reconcile.WatchesOnDemand asks for.
	OnDemand reconcile.OnDemand[Agent[Duty]]

	configured  release.Configured
	permissions *k8s.Permissions
	began       time.Time
	seen        map[slim.Key]release.Release // used by Changed
}

// NewFleet returns the fleet of a cluster.
func NewFleet[Duty any](configured release.Configured, permissions *k8s.Permissions) *Fleet[Duty] {
	return &Fleet[Duty]{configured: configured, permissions: permissions, began: time.Now(), seen: map[slim.Key]release.Release{}}
}

// Of is the releases that the agents run, for the Reconcile of a key. Where it does not matter, where an option tells the release, or where the role does not
// allow to look, it is the release that the cluster is configured for: the operator of a newer one comes before its agents. known is false until
// the agents are known; the key is reconciled again then, or after [Fleet.Pause] while it is not known what the role allows.
func (f *Fleet[Duty]) Of(key slim.Key, matters bool) (all release.Set, known bool) {
	if !matters || f.configured.Forced || f.permissions.Denies("list", k8s.Ref{Resource: AgentPods[Duty]().Resource()}) {
		f.OnDemand.Drop(key)
		return release.SetOf(f.configured.Release), true
	}
	if !f.permissions.Known() && time.Since(f.began) < roleLimit {
		return all, false
	}
	pods := f.OnDemand.Need(key)
	if pods == nil {
		return all, false
	}
	return agents.Running(podsOf(pods.All()), f.configured), true
}

// Pause is when to look again at what is not known yet, 0 for once it is.
func (f *Fleet[Duty]) Pause() time.Duration {
	if f.permissions.Known() {
		return 0
	}
	return rolePause
}

// Drop takes back Of.
func (f *Fleet[Duty]) Drop(key slim.Key) { f.OnDemand.Drop(key) }

// Changed is the keys that the agents matter to, if the release of one has changed.
func (f *Fleet[Duty]) Changed(ch stream.Change[Agent[Duty]]) []slim.Key {
	was, known := f.seen[ch.Key]
	if ch.Kind == stream.Delete {
		delete(f.seen, ch.Key)
	} else {
		now := ch.Object.pod().ReleaseOr(f.configured.Release)
		if known && was == now {
			return nil
		}
		f.seen[ch.Key] = now
	}
	return f.OnDemand.Keys()
}

func podsOf[Duty any](all iter.Seq[*Agent[Duty]]) iter.Seq[*agents.Pod] {
	return func(yield func(*agents.Pod) bool) {
		for a := range all {
			if !yield(a.pod()) {
				return
			}
		}
	}
}
