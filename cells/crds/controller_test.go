// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// CRD-1: the term goes on when nothing is awaited any more, and not before.
func TestSettle(t *testing.T) {
	r := &controller{missing: sets.New("a", "b", "c"), awaited: sets.New("a", "b", "c"), ready: make(chan struct{})}
	isSettled := func() bool {
		select {
		case <-r.ready:
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
		r.markReady(step.name, step.serves)
		if r.missingText() != step.missing || isSettled() != step.settled {
			t.Errorf("after %v: missing %q, settled %t", step, r.missingText(), isSettled())
		}
	}
}

// CRD-1: an error that only the user can repair is not waited for.
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
		if got := isPermanent(test.err); got != test.want {
			t.Errorf("%v: %t", test.err, got)
		}
	}
}

// onlyGet is a server that has no CRD.
type onlyGet struct {
	k8s.Client
	asked int
}

func (o *onlyGet) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	o.asked++
	return nil, apierrors.NewNotFound(resource, ref.Name)
}

// CRD-18: what was kept for its comparison and has changed since is read again, also if it is the last that is heard of it.
func TestKeptCRDThatChangedIsReadAgain(t *testing.T) {
	k := api.Kinds()[0]
	kept, err := k.UnstructuredCRD(edition)
	if err != nil {
		t.Fatal(err)
	}
	kept.SetUID("7d0e5b0e-0d1c-4c39-8d0a-1a2b3c4d5e6f")
	kept.SetResourceVersion("10")
	gone, edited := stateOfCRD(kept), stateOfCRD(kept)
	gone.gone, edited.revision, edited.version = true, 11, ""
	for name, test := range map[string]struct {
		watched map[string]state
		asked   int
	}{
		"not watched yet": {nil, 0},
		"as it was read":  {map[string]state{k.CRDName(): stateOfCRD(kept)}, 0},
		"deleted":         {map[string]state{k.CRDName(): gone}, 1},
		"edited":          {map[string]state{k.CRDName(): edited}, 1},
	} {
		server := &onlyGet{}
		c := &controller{
			client: crdClient{server, edition}, fetched: map[string]*unstructured.Unstructured{k.CRDName(): kept},
			read: map[string]state{k.CRDName(): stateOfCRD(kept)}, watched: test.watched,
		}
		found, err := c.get(t.Context(), k)
		if server.asked != test.asked || (found == kept) != (test.asked == 0) || (err == nil) != (test.asked == 0) {
			t.Errorf("%s: asked %d times, %v", name, server.asked, err)
		}
	}
}

// CRD-18: a change counts that is newer than what was read, and only if a
// decision may depend upon it.
func TestStateOutdatesWhatWasRead(t *testing.T) {
	uid, other := slim.ParseUID("7d0e5b0e-0d1c-4c39-8d0a-1a2b3c4d5e6f"), slim.ParseUID("0c1d2e3f-0000-4000-8000-000000000001")
	read := state{uid: uid, revision: 10, generation: 2, version: "1.30.1"}
	for name, test := range map[string]struct {
		change func(*state)
		want   bool
	}{
		"the same":               {func(*state) {}, false},
		"a condition":            {func(s *state) { s.revision = 11 }, false},
		"the spec":               {func(s *state) { s.revision, s.generation = 11, 3 }, true},
		"the spec, of before":    {func(s *state) { s.revision, s.generation = 9, 1 }, false},
		"the label":              {func(s *state) { s.revision, s.version = 11, "" }, true},
		"being deleted":          {func(s *state) { s.revision, s.deleting = 11, true }, true},
		"deleted":                {func(s *state) { s.gone = true }, true},
		"deleted, as of before":  {func(s *state) { s.revision, s.gone = 9, true }, true},
		"an earlier one deleted": {func(s *state) { s.uid, s.revision, s.gone = other, 9, true }, false},
		"made anew":              {func(s *state) { s.uid, s.revision, s.generation = other, 12, 1 }, true},
	} {
		now := read
		test.change(&now)
		if got := now.outdates(read); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
