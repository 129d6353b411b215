// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// maxEarlyReasons bounds the reasons that are recorded at the start of a term, of pods that wait and of pods that need
// no identity.
const maxEarlyReasons = 1024

// podReason is why a pod has no identity.
type podReason struct {
	pod    slim.Key
	reason string
}

// recordEarlyReason records, before markSynced, why a pod has no identity that is in no other index.
func (t *table) recordEarlyReason(pod slim.Key, reason string) {
	_, known := t.earlyReasons[pod]
	switch {
	case reason != hostNetwork && reason != finished && reason != largeLabels:
		delete(t.earlyReasons, pod)
	case t.synced || !known && len(t.earlyReasons) >= maxEarlyReasons:
	default:
		t.earlyReasons[pod] = reason
	}
}

// drainReasons returns and clears the reasons of pods that were handled before markSynced.
func (t *table) drainReasons() []podReason {
	reasons := make([]podReason, 0, maxEarlyReasons)
	t.podsWithoutSet(func(pod slim.Key, reason string) bool {
		reasons = append(reasons, podReason{pod, reason})
		return len(reasons) < maxEarlyReasons
	})
	for pod, reason := range t.earlyReasons {
		reasons = append(reasons, podReason{pod, reason})
	}
	clear(t.earlyReasons)
	return reasons
}

// podsWithoutSet yields the indexed pods that have no set.
func (t *table) podsWithoutSet(yield func(slim.Key, string) bool) {
	for _, n := range t.namespaces {
		for _, tmpl := range n.templates {
			if tmpl.set != nil {
				continue
			}
			for _, p := range tmpl.pods {
				if !yield(p.key(), tmpl.waitReason()) {
					return
				}
			}
		}
	}
	for _, pods := range t.unmanaged {
		for pod := range pods {
			if !yield(pod, unmanagedNode) {
				return
			}
		}
	}
}

// maxTriggers bounds the pods of a set that are recorded as triggers.
const maxTriggers = 8

// podTriggers are pods of a set without an identity, as triggers.
func (s *set) podTriggers() (triggers []k8s.Trigger) {
	if s.exists {
		return nil
	}
	for _, tmpl := range s.templates {
		for _, p := range tmpl.pods {
			if len(triggers) == maxTriggers {
				return triggers
			}
			triggers = append(triggers, podTrigger(p.key()))
		}
	}
	return triggers
}

func podTrigger(pod slim.Key) k8s.Trigger {
	return k8s.Trigger{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
}

// setLarge records whether the labels of a pod are too large, and reports whether that is news.
func (t *table) setLarge(pod slim.Key, large bool) (isNews bool) {
	if !large {
		delete(t.large, pod)
		return false
	}
	was := t.large[pod]
	t.large[pod] = true
	return !was
}

func (tmpl *template) waitReason() string {
	switch {
	case !tmpl.namespace.exists && tmpl.set == nil:
		return noNamespace
	case tmpl.set == nil:
		return noLabelKept
	}
	return ""
}
