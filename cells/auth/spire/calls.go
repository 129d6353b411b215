// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skep-operator/skep/cells/auth/spire/internal/entryapi"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/outside"
)

const (
	batchSize   = 50               // entries of a call
	pageSize    = 1000             // entries of a page
	parallel    = 4                // calls at once
	callTimeout = 30 * time.Second // of a call
	// pauseOfLimit is the pause after the server has refused a call for its rate.
	pauseOfLimit = 30 * time.Second
)

// limits are above what a SPIRE server stores in a second: what bounds the rate are its answers.
var limits = outside.Limits{QPS: 200, Burst: 200}

// server makes the calls to the SPIRE server.
type server struct {
	connection *connection
	calls      *outside.Door
	metrics    *entryMetrics
	ids        ids
	api        entryapi.Client // since open
}

func newServer(c Config, conn *connection, s outside.Scope, api *outside.APIMetrics, m *entryMetrics) *server {
	return &server{connection: conn, calls: outside.New(s, "spire", limits).Measured(api), metrics: m, ids: ids{c.MeshAuthSPIFFETrustDomain}}
}

func (s *server) open(ctx context.Context) (err error) {
	s.api, err = s.connection.open(ctx)
	return err
}

// close has the next attempt connect again.
func (s *server) close() { s.connection.close() }

// list returns the entries of identities that this operator has created.
func (s *server) list(ctx context.Context) (all []entryapi.Entry, err error) {
	for token := ""; ; {
		var page entryapi.Page
		if err := s.calls.ReadOperation(ctx, "ListEntries", s.limited(func(ctx context.Context) (err error) {
			page, err = s.api.List(ctx, s.ids.filter(), pageSize, token)
			return err
		})); err != nil {
			return nil, err
		}
		for _, e := range page.Entries {
			if s.ids.owns(e) {
				all = append(all, e)
			}
		}
		if page.Next == "" {
			return all, nil
		}
		if page.Next == token {
			return nil, fmt.Errorf("ListEntries: the server answers with the token %q of the same page", token)
		}
		token = page.Next
	}
}

// create creates the entries of identities, and returns a result for each.
func (s *server) create(ctx context.Context, numbers []identity.Number) (results []entryapi.Result, err error) {
	entries := make([]entryapi.Entry, len(numbers))
	for i, n := range numbers {
		entries[i] = s.ids.entry(n)
	}
	call := outside.Call{
		Verb: "create", Resource: "entries", Name: nameOf(numbers), Operation: "BatchCreateEntry",
		Planned: func() {
			for _, e := range entries {
				e.ID = "planned"
				results = append(results, entryapi.Result{Entry: e})
			}
		},
	}
	if call.Request, err = json.Marshal(map[string]any{"entries": entries}); err != nil {
		return nil, err
	}
	err = s.calls.Do(ctx, call, s.limited(func(ctx context.Context) (err error) {
		results, err = s.api.Create(ctx, entries)
		return err
	}))
	return results, err
}

// remove deletes entries, and returns a result for each.
func (s *server) remove(ctx context.Context, removals []removal) (results []entryapi.Result, err error) {
	numbers, entries := make([]identity.Number, len(removals)), make([]string, len(removals))
	for i, r := range removals {
		numbers[i], entries[i] = r.number, r.entry
	}
	call := outside.Call{
		Verb: "delete", Resource: "entries", Name: nameOf(numbers), Operation: "BatchDeleteEntry",
		Planned: func() { results = make([]entryapi.Result, len(removals)) },
	}
	if call.Request, err = json.Marshal(map[string]any{"ids": entries}); err != nil {
		return nil, err
	}
	err = s.calls.Do(ctx, call, s.limited(func(ctx context.Context) (err error) {
		results, err = s.api.Delete(ctx, entries)
		return err
	}))
	return results, err
}

// nameOf is the name of a batch for people.
func nameOf(numbers []identity.Number) string {
	if len(numbers) == 1 {
		return pathOf(numbers[0])
	}
	return fmt.Sprintf("%s and %d more", pathOf(numbers[0]), len(numbers)-1)
}

// limited bounds a call. A server that limits the rate is left alone for a while, which it does not state.
func (s *server) limited(call func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err := call(limited)
		if err == nil {
			s.metrics.Connected.Set(1)
			return nil
		}
		s.metrics.Connected.Set(0)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case status.Code(err) == codes.ResourceExhausted:
			return outside.Throttled(err, pauseOfLimit)
		case status.Code(err) == codes.PermissionDenied:
			return fmt.Errorf("the operator is no administrator of the SPIRE server: add %s to its admin_ids: %w", s.connection.workload.self, err)
		}
		return err
	}
}
