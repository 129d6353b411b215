// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/spire/internal/entryapi"
	"github.com/skep-operator/skep/runtime/printable"
)

const (
	batchSize = 50   // entries of a call, at most
	pageSize  = 1000 // entries of a page, at most
	parallel  = 4    // calls at once, at most
	// pageTries is how often a page is asked for that does not come in time, and smallestPage how many entries it has then, at least: a server that
	// hangs for a while is not asked for one at a time afterwards.
	pageTries    = 3
	smallestPage = 100
	// maxID is how long the id of an entry is at most, in bytes. The server's own have 36.
	maxID = 255
	// pauseOfLimit is the pause after the server has refused a call for its rate.
	pauseOfLimit = 30 * time.Second
)

// limits are above what a SPIRE server stores in a second: what bounds the rate are its answers.
var limits = outside.Limits{QPS: 200, Burst: 200}

// server makes the calls about entries of a kind.
type server[K cmp.Ordered] struct {
	kind       Kind[K]
	domain     string
	connection *Connection
	calls      *outside.Door
	metrics    *serverMetrics // nil: not counted

	pageSize int32
	link     *link           // since open
	api      entryapi.Client // of the link
}

func newServer[K cmp.Ordered](d Deps, k Kind[K]) *server[K] {
	return &server[K]{
		kind: k, domain: d.Connection.workload.domain.Name(), connection: d.Connection,
		calls: outside.New(d.Scope, "spire", limits).Measured(d.api), metrics: d.metrics, pageSize: pageSize,
	}
}

func (s *server[K]) open(ctx context.Context) (err error) {
	if s.link, err = s.connection.acquire(ctx); err == nil {
		s.api = entryapi.Client{Conn: s.link.conn}
	}
	return err
}

// close ends an attempt. After a failure the next one connects again.
func (s *server[K]) close(failed bool) {
	if s.link != nil {
		s.connection.release(s.link, failed)
		s.link = nil
	}
}

// list returns the entries of the kind, and how many the server has listed, others among them.
func (s *server[K]) list(ctx context.Context) (all entries[K], listed int, err error) {
	all = entries[K]{}
	for token, pages := "", 1; ; pages++ {
		page, err := s.page(ctx, token)
		if err != nil {
			return nil, 0, err
		}
		listed += len(page.Entries)
		if err := outside.CheckList("ListEntries", pages, listed); err != nil {
			return nil, 0, err
		}
		for _, e := range page.Entries {
			if len(e.ID) > maxID {
				return nil, 0, fmt.Errorf("ListEntries: the server answers with an entry whose id %q has %d bytes", printable.Cut(e.ID, maxID), len(e.ID))
			}
			if key, ours := s.kind.keyOf(s.domain, e); ours {
				all[key] = append(all[key], e.ID)
			}
		}
		if page.Next == "" {
			return all, listed, nil
		}
		if page.Next == token {
			return nil, 0, fmt.Errorf("ListEntries: the server answers with the token %q of the same page", token)
		}
		token = page.Next
	}
}

// page returns the page with a token. One that is too large for a message, or does not come in time, is asked for with half as many entries, and
// so are all from then on; the pages before it count.
func (s *server[K]) page(ctx context.Context, token string) (page entryapi.Page, err error) {
	for tries := 1; ; {
		tooLarge := false
		err := s.calls.ReadOperation(ctx, "ListEntries", s.limited(func(ctx context.Context) (err error) {
			page, err = s.api.List(ctx, s.kind.filter(s.domain), s.pageSize, token)
			if tooLarge = entryapi.TooLarge(err) && s.pageSize > 1; tooLarge {
				return nil // the server is well
			}
			return err
		}))
		late := timedOut(err) && tries < pageTries
		switch {
		case late:
			tries++
			s.pageSize = max(s.pageSize/2, min(s.pageSize, smallestPage))
		case tooLarge:
			s.pageSize /= 2
		default:
			return page, err
		}
	}
}

// count is how many entries the server would list. known is false for a server that does not count.
func (s *server[K]) count(ctx context.Context) (n int, known bool, err error) {
	err = s.calls.ReadOperation(ctx, "CountEntries", s.limited(func(ctx context.Context) (err error) {
		n, err = s.api.Count(ctx, s.kind.filter(s.domain))
		if known = status.Code(err) != codes.Unimplemented; !known {
			return nil
		}
		return err
	}))
	return n, known && err == nil, err
}

// create creates entries, and returns a result for each.
func (s *server[K]) create(ctx context.Context, keys []K) (results []entryapi.Result, err error) {
	entries := make([]entryapi.Entry, len(keys))
	for i, key := range keys {
		entries[i] = s.kind.entry(s.domain, key)
	}
	call := outside.Call{
		Verb: "create", Resource: "entries", Name: s.nameOf(keys), Operation: "BatchCreateEntry",
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
func (s *server[K]) remove(ctx context.Context, removals []removal[K]) (results []entryapi.Result, err error) {
	entries := make([]string, len(removals))
	for i, r := range removals {
		entries[i] = r.entry
	}
	call := outside.Call{
		Verb: "delete", Resource: "entries", Name: s.nameOf(keysOf(removals)), Operation: "BatchDeleteEntry",
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

// nameOf is the name of a batch for people, without the slash with which paths begin.
func (s *server[K]) nameOf(keys []K) string {
	first := strings.TrimPrefix(s.kind.Path(keys[0]), "/")
	if len(keys) == 1 {
		return first
	}
	return fmt.Sprintf("%s and %d more", first, len(keys)-1)
}

// limited bounds a call. A server that limits the rate is left alone for a while, which it does not state.
func (s *server[K]) limited(call func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, s.connection.pacer.patience.call)
		defer cancel()
		err := call(limited)
		s.metrics.answered(err == nil)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case entryapi.TooLarge(err):
			return fmt.Errorf("an entry is larger than a message of gRPC can be: delete it at the server, or give it fewer selectors: %w", err)
		case status.Code(err) == codes.ResourceExhausted:
			return outside.Throttled(err, pauseOfLimit)
		case status.Code(err) == codes.PermissionDenied:
			return fmt.Errorf("the operator is no administrator of the SPIRE server: add %s to its admin_ids: %w", s.connection.workload.self, err)
		}
		if ended := s.connection.workload.ended(time.Now()); ended != nil && status.Code(err) == codes.Unavailable {
			return fmt.Errorf("%w: %w", ended, err)
		}
		return err
	}
}

// timedOut reports whether the answer to a call did not come in time. What it asked for may have been done, or not; answers to others count.
func timedOut(err error) bool { return status.Code(err) == codes.DeadlineExceeded }
