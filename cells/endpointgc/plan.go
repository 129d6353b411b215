// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// owner is an object that an endpoint depends on.
type owner struct {
	kind string // Pod or CiliumNode
	key  slim.Key
}

// The known kinds of owners. Only their names count: agents that reuse an endpoint do not update the uid of its owner.
const (
	kindPod  = "Pod"
	kindNode = "CiliumNode"
)

// ownerState is the state of an owner.
type ownerState uint8

const (
	absent ownerState = iota
	alive
	finished // a pod in a final phase
)

// isGarbage decides whether an endpoint is garbage, and why. Owners are read in their order; the first one that exists
// decides. An error of stateOf is returned as it is.
func isGarbage(e *ciliumio.Endpoint, stateOf func(owner) (ownerState, error)) (garbage bool, why string, err error) {
	podOwner := false
	for _, ref := range e.Owners {
		o := owner{kind: ref.Kind.String(), key: slim.Key{Name: ref.Name}}
		switch o.kind {
		case kindPod:
			podOwner = true
			o.key.Namespace = e.Namespace.String()
		case kindNode:
		default: // unknown: its controller deletes the endpoint
			return false, "", nil
		}
		state, err := stateOf(o)
		switch {
		case err != nil || state == alive:
			return false, "", err
		case state == finished:
			return true, "its pod has finished", nil
		}
	}
	if !podOwner {
		switch state, err := stateOf(owner{kindPod, e.Key()}); {
		case err != nil || state == alive:
			return false, "", err
		case state == finished:
			return true, "its pod has finished", nil
		}
	}
	return true, "its owner is gone", nil
}

// podState maps the phase of a pod.
func podState(phase string) ownerState {
	if phase == "Succeeded" || phase == "Failed" {
		return finished
	}
	return alive
}

// young reports whether an endpoint is so new that the stores may miss its pod.
func young(e *ciliumio.Endpoint, now time.Time, least time.Duration) bool {
	return !e.CreationTimestamp.IsZero() && now.Sub(e.CreationTimestamp.Time()) < least
}

// staleOwner returns the running pod of the first owner reference that has one, and whether the reference has the uid of
// an earlier pod of that name. Kubernetes garbage-collects such an endpoint.
func staleOwner(e *ciliumio.Endpoint, find func(slim.Key) *slim.Pod) (index int, pod *slim.Pod, stale bool) {
	for i, o := range e.Owners {
		if o.Kind.String() != kindPod {
			continue
		}
		pod := find(slim.Key{Namespace: e.Namespace.String(), Name: o.Name})
		if pod == nil || podState(pod.Status.Phase.String()) != alive {
			continue
		}
		return i, pod, pod.UID != o.UID
	}
	return 0, nil, false
}

// foreign reports whether an endpoint and its pod have addresses, and none in common: another CNI connects the pod.
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

// sameAddresses reports whether an endpoint has exactly the addresses of a pod.
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
