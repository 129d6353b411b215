// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"context"
	"fmt"
	"time"

	"github.com/skep-operator/skep/resources/stream/internal/conditions"
)

// Definitions are the CustomResourceDefinitions that the server has.
type Definitions interface {
	// Use keeps them up to date until release is called.
	Use() (release func())
	// Await returns true once the definition of this name exists. It calls onAbsent
	// once it is known not to. known is false if definitions cannot be listed in time.
	Await(ctx context.Context, name string, limit time.Duration, onAbsent func()) (known bool)
	// Forbidden reports whether the server does not allow to watch them.
	Forbidden() bool
}

// awaitResource waits until a resource that the server does not have is worth
// another request. Its objects are deleted from the stream once it is known not to
// exist, of which one 404 is no proof: an API server that is starting sends 404, too.
func (r *Reflector[P]) awaitResource(ctx context.Context, cause error) {
	if !r.Custom {
		r.Conditions.SetAndReport(conditions.Connection, fmt.Errorf("the server does not serve %s, asking again: %w", r.Resource.GroupResource(), cause))
		r.backoff.waitAtLeast(r.timing.crdPollDelay(r.notFoundCount))
		r.notFoundCount++
		return
	}
	r.backoff.recordFailure(cause) // it may be defined and not served yet
	name := r.Resource.GroupResource().String()
	r.Conditions.SetAndReport(conditions.Resource, fmt.Errorf("the CustomResourceDefinition %s does not serve version %s yet, waiting for it: %w",
		name, r.Resource.Version, cause))
	if r.releaseDefinitions == nil {
		r.releaseDefinitions = r.Definitions.Use() // until the resource exists
	}
	if r.Definitions.Await(ctx, name, r.timing.crdPollDelay(r.notFoundCount), r.deleteAll) {
		r.notFoundCount = 0
		return
	}
	if r.notFoundCount++; r.notFoundCount >= notFoundUntilGone && r.Definitions.Forbidden() {
		r.deleteAll()
	}
}

// notFoundUntilGone is the number of 404s in a row that prove that a resource does
// not exist, if the role does not allow to watch definitions. If these cannot be
// watched for another reason, a proxy may answer in place of the API server.
const notFoundUntilGone = 3

// resourceFound ends the wait for a resource.
func (r *Reflector[P]) resourceFound() {
	r.notFoundCount = 0
	r.Conditions.SetAndReport(conditions.Resource, nil)
	if r.releaseDefinitions != nil {
		r.releaseDefinitions()
		r.releaseDefinitions = nil
	}
}

// deleteAll deletes all objects, if there were any.
func (r *Reflector[P]) deleteAll() {
	r.changes.Lock()
	if r.changes.IsSynced() {
		objs, _ := r.mergePlan(nil, nil)
		r.changes.Replace(objs, nil, nil, r.changes.CurrentRevision())
	}
	r.changes.Unlock()
}
