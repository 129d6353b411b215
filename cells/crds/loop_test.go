// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Rule 1: the term goes on when nothing is awaited any more, and not before.
func TestSettle(t *testing.T) {
	r := &registrar{missing: sets.New("a", "b", "c"), awaited: sets.New("a", "b", "c"), settled: make(chan struct{})}
	isSettled := func() bool {
		select {
		case <-r.settled:
			return true
		default:
			return false
		}
	}
	for _, step := range []struct {
		name    string
		serves  bool
		missing string
		settled bool
	}{
		{"a", true, "b, c", false},
		{"a", true, "b, c", false}, // looked at again
		{"b", false, "b, c", false},
		{"c", true, "b", true},
		{"b", false, "b", true},
		{"b", true, "", true}, // at last
	} {
		r.settle(step.name, step.serves)
		if r.missingText() != step.missing || isSettled() != step.settled {
			t.Errorf("after %v: missing %q, settled %t", step, r.missingText(), isSettled())
		}
	}
}

// Rule 1: what waits for somebody to act is not waited for.
func TestLasts(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewForbidden(resource, "a", nil), true},
		{fmt.Errorf("updating: %w", apierrors.NewInvalid(schema.GroupKind{}, "a", nil)), true},
		{fmt.Errorf("%w (reason)", errNamesTaken), true},
		{errBeingDeleted, true},
		{apierrors.NewInternalError(errors.New("away")), false},
		{apierrors.NewServiceUnavailable("away"), false},
		{apierrors.NewConflict(resource, "a", nil), false},
		{apierrors.NewTooManyRequests("later", 1), false},
		{context.DeadlineExceeded, false},
		{errors.New("connection refused"), false},
	} {
		if got := lasts(test.err); got != test.want {
			t.Errorf("%v: %t", test.err, got)
		}
	}
}
