// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// crd is a CustomResourceDefinition of which only the name is kept.
type crd struct {
	slim.Meta `json:"metadata"`
}

// newCRDs makes the stream of definitions that a source's streams share. It
// runs only while one of them waits for a definition.
func newCRDs(source *Source) (*Stream[crd], error) {
	kind := Metadata[crd](schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	kind.custom = false
	return New(source, kind, WithLinger(0))
}

// presence is what is known of a CustomResourceDefinition.
type presence uint8

const (
	unknown presence = iota // definitions cannot be watched
	absent
	present
)

// awaitCRD waits until the definition is there. It calls absent when it is known
// not to be. If definitions cannot be watched it returns after a while.
func (s *Source) awaitCRD(ctx context.Context, name string, patience time.Duration, onAbsent func()) presence {
	crds, err := s.crds()
	if err != nil {
		return unknown
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patient := time.NewTimer(patience)
	defer patient.Stop()
	known := unknown
	for events := crds.Events(ctx, Named("wait for "+name)); ; {
		select {
		case e, ok := <-events:
			if !ok {
				return known
			}
			e.Done(nil)
			switch {
			case e.Kind == Upsert && e.Key.Name == name:
				return present
			case e.Kind == Sync:
				known = absent
				patient.Stop()
				onAbsent()
			}
		case <-patient.C:
			return known
		case <-ctx.Done():
			return known
		}
	}
}

// awaitResource waits until it is worth to ask again for a resource that the
// server does not have. Objects that the stream keeps of it are gone once the
// server is known not to have it, which one 404 does not say: an API server
// that is starting answers so too.
func (r *run[T]) awaitResource(ctx context.Context, cause error) {
	if !r.kind.custom {
		r.pace.rest(r.timing.patience(r.misses))
		r.misses++
		return
	}
	r.pace.fail(cause) // it may be defined and not served yet
	name := r.kind.gvr.GroupResource().String()
	r.conditions.set(conditionResource, fmt.Errorf("the CustomResourceDefinition %s does not serve version %s yet, waiting for it: %w",
		name, r.kind.gvr.Version, cause))
	if crds, err := r.source.crds(); err == nil && r.leaveCRDs == nil {
		_, r.leaveCRDs = crds.use() // until the resource is there
	}
	if r.source.awaitCRD(ctx, name, r.timing.patience(r.misses), r.gone) != unknown {
		r.misses = 0
		return
	}
	if r.misses++; r.misses >= missesUntilGone {
		r.gone()
	}
}

// missesUntilGone is the number of answers in a row that a resource is not
// there which, if definitions cannot be watched, have to do for a proof.
const missesUntilGone = 3

// found ends the wait for a resource.
func (r *run[T]) found() {
	r.misses = 0
	r.conditions.set(conditionResource, nil)
	if r.leaveCRDs != nil {
		r.leaveCRDs()
		r.leaveCRDs = nil
	}
}

// gone deletes all objects, if there were any.
func (r *run[T]) gone() {
	r.changes.mu.Lock()
	if r.changes.isSynced() {
		objs, _ := r.mergePlan(nil, nil)
		r.changes.replace(objs, nil, nil, r.changes.revision)
	}
	r.changes.unlockAndReport()
}
