// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/resources/k8s"
)

// Spec says what is swept, and how. Its functions are called one at a time, but
// for those that Workers names.
type Spec[K comparable, T any] struct {
	// Rule says in one or two words what the sweep does. It is part of the cause
	// of each delete, after the module's id.
	Rule string
	// Interval is the time from the end of a sweep to the start of the next. 0
	// makes one sweep that succeeds, and no more.
	Interval time.Duration
	// Confirmations are the scans in a row that find a candidate before it is deleted,
	// and Grace is the time from the first of them to the last. Two sightings are
	// the least; a single sweep has one, and no grace.
	Confirmations int
	Grace         time.Duration
	// Rate bounds deletes, failed ones included. Without it there are 20 a second, and where Namespace is set a sweep has at most 200: what is left comes with the
	// next one, which begins at once, so that what has become garbage meanwhile is seen. A batch is sent when it may delete all of its objects.
	Rate *rate.Limiter
	// Workers is for how many candidates Check, Delete and Trigger are called at
	// once. Without it they are called for one after the other.
	Workers int
	// NoSafetyLimit is for sweeps that delete all objects.
	NoSafetyLimit bool
	// Namespace, if set, is the namespace of an object, "" for none. Objects are deleted by turns of their namespaces, and in each in the order in which they were seen.
	// Where so many objects of one namespace look like garbage that it is hard to believe, those of the others are deleted.
	Namespace func(T) string
	// Few, if set, is how many objects of namespaces that are not believed go in each sweep all the same: where they keep others from what these need, it is worse that
	// none goes. It is called once in each sweep that is limited.
	Few func() int

	// Scan finds what looks like garbage. An error says that the view is not
	// complete: nothing follows from it.
	Scan func(context.Context) (Found[K, T], error)
	// Confirm, if set, brings what Scan reads up to date. It is called before the
	// first delete of a sweep; then a scan is made again, and what that does not
	// find is spared.
	Confirm func(context.Context) error
	// Check, if set, asks right before a delete whether an object is garbage. What
	// it says has to hold now, not in some view. An error spares the object until
	// the next sweep.
	Check func(context.Context, T) (garbage bool, err error)
	// Delete deletes the object that was judged and no other of its name. It may
	// find that there is nothing to do.
	Delete func(context.Context, T) (Outcome, error)
	// DeleteBatch, in place of Check and Delete, deletes up to Batch objects with one request, each by itself. The
	// outcomes are those of the objects, in their order; after an error, objects without one have failed.
	DeleteBatch func(context.Context, []T) ([]Outcome, error)
	Batch       int
	// Trigger names an object in the cause of its deletion.
	Trigger func(T) k8s.Trigger
	// Ended, if set, is called after each sweep.
	Ended func(Result)
}

// Result is the result of a sweep.
type Result struct {
	// Outcomes counts the candidates that were due, by outcome.
	Outcomes map[Outcome]int
	Took     time.Duration
	// Err is why the sweep failed, reached the safety limit, or was ended early by its
	// context. Nil is a success.
	Err error
}

// Found is what a scan has found.
type Found[K comparable, T any] struct {
	Candidates []Candidate[K, T]
	// Total is the number of objects that the candidates are a part of.
	Total int
}

// Candidate is an object that looks like garbage.
type Candidate[K comparable, T any] struct {
	// Key tells the object from all others, also from a later one of its name: it
	// has the uid or the revision.
	Key K
	// Object is its newest state, as Check and Delete want it.
	Object T
	// Why is for the log.
	Why string
	// Wait keeps it from being deleted by this sweep. It is seen all the same.
	Wait bool
	// Terminating is set for an object with a deletion timestamp: it is deleted
	// already, and waits for its finalizers. It is not deleted again.
	Terminating bool
}

// Outcome is the result of the processing of a candidate.
type Outcome string

const (
	Deleted Outcome = "deleted"
	Gone    Outcome = "gone"    // another client was faster
	Changed Outcome = "changed" // it is not the object that was judged any more
	Spared  Outcome = "spared"  // Check or Confirm found that it is needed
	Failed  Outcome = "failed"
)

// OutcomeOf is what the response of the API server to the deletion of an object, with
// preconditions, means. Errors that mean an outcome are none any more.
func OutcomeOf(err error, ref k8s.Ref) (Outcome, error) {
	switch {
	case err == nil:
		return Deleted, nil
	case k8s.IsNotFound(err, ref):
		return Gone, nil
	case k8s.IsConflict(err, ref):
		return Changed, nil
	}
	return Failed, err
}
