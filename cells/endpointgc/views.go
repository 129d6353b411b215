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

// views are what streams show, each complete, and each late by its own time.
type views struct {
	endpoints *stream.Store[ciliumio.Endpoint]
	pods      *stream.Store[slim.Pod]
	nodes     *stream.Store[ciliumio.Node]
}

// open returns when all views are complete. They are used until ctx ends.
func (p params) open(ctx context.Context) (v views, err error) {
	if v.endpoints, err = p.Endpoints.Store(ctx); err != nil {
		return v, err
	}
	if v.pods, err = p.Pods.Store(ctx); err != nil {
		return v, err
	}
	v.nodes, err = p.Nodes.Store(ctx)
	return v, err
}

// id is an endpoint, and no later one of its name.
type id struct {
	key slim.Key
	uid slim.UID
}

// oddities are what is wrong with endpoints that are kept.
type oddities struct {
	stale   []*ciliumio.Endpoint // their owner is an earlier pod
	foreign int                  // none of their addresses is their pod's
}

// survey looks at all endpoints. Those younger than least are no candidates.
func (v views) survey(now time.Time, least time.Duration) (found sweep.Found[id, *ciliumio.Endpoint], odd oddities) {
	look := v.look()
	for e := range v.endpoints.All() {
		found.Total++
		garbage, why, _ := judge(e, look) // views do not fail
		switch {
		case garbage && !young(e, now, least):
			found.Candidates = append(found.Candidates, sweep.Candidate[id, *ciliumio.Endpoint]{Key: id{e.Key(), e.UID}, Object: e, Why: why})
		case !garbage:
			v.note(e, &odd)
		}
	}
	return found, odd
}

func (v views) note(e *ciliumio.Endpoint, odd *oddities) {
	_, pod, stale := staleOwner(e, v.pod)
	if stale {
		odd.stale = append(odd.stale, e)
	}
	if pod != nil && foreign(e, pod) {
		odd.foreign++
	}
}

func (v views) pod(key slim.Key) *slim.Pod {
	pod, _ := v.pods.Get(key)
	return pod
}

// look finds witnesses in the views. Those that cannot be read are there all the
// same.
func (v views) look() func(witness) (condition, error) {
	pods, nodes := set(v.pods.Unreadable()), set(v.nodes.Unreadable())
	return func(w witness) (condition, error) {
		switch w.kind {
		case kindPod:
			switch pod := v.pod(w.key); {
			case pods[w.key]:
				return alive, nil
			case pod != nil:
				return podCondition(pod.Status.Phase.String()), nil
			}
		case kindNode:
			if _, ok := v.nodes.Get(w.key); ok || nodes[w.key] {
				return alive, nil
			}
		}
		return absent, nil
	}
}

func set(keys []slim.Key) map[slim.Key]bool {
	all := make(map[slim.Key]bool, len(keys))
	for _, k := range keys {
		all[k] = true
	}
	return all
}
