// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// witness is an object that an endpoint depends upon.
type witness struct {
	kind string // Pod or CiliumNode
	key  slim.Key
}

// The kinds of owners that are known. Only their names count: agents that take
// over an endpoint leave the uid of the owner as it was.
const (
	kindPod  = "Pod"
	kindNode = "CiliumNode"
)

// condition is how a witness is.
type condition uint8

const (
	absent condition = iota
	alive
	finished // a pod that will not run any more
)

// judge decides whether an endpoint is garbage, and why, from what look finds of
// its witnesses. Owners are asked in their order; the first one that is there
// decides. An error of look is returned as it is.
func judge(e *ciliumio.Endpoint, look func(witness) (condition, error)) (garbage bool, why string, err error) {
	asked := false // a pod
	for _, o := range e.Owners {
		w := witness{kind: o.Kind.String(), key: slim.Key{Name: o.Name}}
		switch w.kind {
		case kindPod:
			asked = true
			w.key.Namespace = e.Namespace.String()
		case kindNode:
		default: // somebody else's, who knows
			return false, "", nil
		}
		c, err := look(w)
		switch {
		case err != nil || c == alive:
			return false, "", err
		case c == finished:
			return true, "its pod has finished", nil
		}
	}
	if !asked {
		switch c, err := look(witness{kindPod, e.Key()}); {
		case err != nil || c == alive:
			return false, "", err
		case c == finished:
			return true, "its pod has finished", nil
		}
	}
	return true, "its owner is gone", nil
}

// podCondition is what the phase of a pod says.
func podCondition(phase string) condition {
	if phase == "Succeeded" || phase == "Failed" {
		return finished
	}
	return alive
}

// young reports whether an endpoint was made so lately that views may not show
// its pod yet.
func young(e *ciliumio.Endpoint, now time.Time, least time.Duration) bool {
	return !e.CreationTimestamp.IsZero() && now.Sub(e.CreationTimestamp.Time()) < least
}

// staleOwner returns the owner reference of an endpoint that names an earlier pod
// of the same name as the one that lives, and that pod. Kubernetes takes such an
// endpoint for garbage.
func staleOwner(e *ciliumio.Endpoint, find func(slim.Key) *slim.Pod) (index int, pod *slim.Pod, stale bool) {
	for i, o := range e.Owners {
		if o.Kind.String() != kindPod {
			continue
		}
		pod := find(slim.Key{Namespace: e.Namespace.String(), Name: o.Name})
		if pod == nil || podCondition(pod.Status.Phase.String()) != alive {
			continue
		}
		return i, pod, pod.UID != o.UID
	}
	return 0, nil, false
}

// foreign reports whether an endpoint has addresses, its pod has some, and they
// have none in common: the pod's network is not Cilium's any more.
func foreign(e *ciliumio.Endpoint, pod *slim.Pod) bool {
	has := false
	for a := range e.Status.Networking.Addresses() {
		if podHas(pod, a) {
			return false
		}
		has = true
	}
	return has && len(pod.Status.PodIPs) > 0
}

// sameAddresses reports whether an endpoint is that of a pod beyond doubt.
func sameAddresses(e *ciliumio.Endpoint, pod *slim.Pod) bool {
	n := 0
	for a := range e.Status.Networking.Addresses() {
		if !podHas(pod, a) {
			return false
		}
		n++
	}
	return n > 0 && n == len(pod.Status.PodIPs)
}

func podHas(pod *slim.Pod, a slim.Addr) bool {
	return slices.Contains(pod.Status.PodIPs, slim.PodIP{IP: a})
}
