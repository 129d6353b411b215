// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"context"
	"time"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
)

// stores are synced stores of the streams, each with its own delay.
type stores struct {
	endpoints *stream.Store[ciliumio.Endpoint]
	pods      *stream.Store[slim.Pod]
	nodes     *stream.Store[ciliumio.Node]
}

// open returns when all stores are synced. They are used until ctx ends.
func (p params) open(ctx context.Context) (s stores, err error) {
	if s.endpoints, err = p.Endpoints.Store(ctx); err != nil {
		return s, err
	}
	if s.pods, err = p.Pods.Store(ctx); err != nil {
		return s, err
	}
	s.nodes, err = p.Nodes.Store(ctx)
	return s, err
}

// id is an endpoint, and no later one of its name.
type id struct {
	key slim.Key
	uid slim.UID
}

// anomalies are defects of endpoints that are kept.
type anomalies struct {
	stale   []*ciliumio.Endpoint // whose owner has the uid of an earlier pod
	foreign int                  // that share no address with their pod
}

// scan finds garbage among all endpoints. Endpoints younger than minAge are no candidates.
func (s stores) scan(now time.Time, minAge time.Duration) (found sweep.Found[id, *ciliumio.Endpoint], defects anomalies) {
	stateOf := s.ownerState
	for e := range s.endpoints.All() {
		found.Total++
		if e.CannotDecode("metadata.ownerReferences", "metadata.creationTimestamp") {
			continue // undecidable
		}
		garbage, why, _ := isGarbage(e, stateOf) // stores do not fail
		switch {
		case garbage && !young(e, now, minAge):
			found.Candidates = append(found.Candidates, sweep.Candidate[id, *ciliumio.Endpoint]{
				Key: id{e.Key(), e.UID}, Object: e, Why: why, Terminating: !e.DeletionTimestamp.IsZero(),
			})
		case !garbage:
			s.addAnomalies(e, &defects)
		}
	}
	return found, defects
}

func (s stores) addAnomalies(e *ciliumio.Endpoint, defects *anomalies) {
	_, pod, stale := staleOwner(e, s.pod)
	if stale {
		defects.stale = append(defects.stale, e)
	}
	if pod != nil && foreign(e, pod) {
		defects.foreign++
	}
}

func (s stores) pod(key slim.Key) *slim.Pod {
	pod, _ := s.pods.Get(key)
	return pod
}

// ownerState finds owners in the stores. Unreadable ones exist.
func (s stores) ownerState(o owner) (ownerState, error) {
	switch o.kind {
	case kindPod:
		switch pod := s.pod(o.key); {
		case s.pods.Hides(o.key):
			return alive, nil
		case pod != nil:
			return podState(pod.Status.Phase.String()), nil
		}
	case kindNode:
		if _, ok := s.nodes.Get(o.key); ok || s.nodes.Hides(o.key) {
			return alive, nil
		}
	}
	return absent, nil
}
