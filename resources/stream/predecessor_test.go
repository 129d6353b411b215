// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/stream"
)

// handover is what leaders before say they wrote.
type handover struct {
	revision uint64
	known    bool
	saw      []uint64
}

func (h *handover) PredecessorRevision(context.Context, schema.GroupVersionResource) (uint64, bool, error) {
	return h.revision, h.known, nil
}
func (h *handover) WasLeader() bool { return false }
func (h *handover) RecordSynced(_ schema.GroupVersionResource, revision uint64) {
	h.saw = append(h.saw, revision)
}

func TestAwaitPredecessor(t *testing.T) {
	for name, c := range map[string]struct {
		before func(now uint64) handover
		took   time.Duration
		lists  int
	}{
		"what was written is shown":   {func(now uint64) handover { return handover{revision: now, known: true} }, 0, 0},
		"it is not known":             {func(uint64) handover { return handover{} }, 0, 1},
		"it was lost with the backup": {func(now uint64) handover { return handover{revision: now + 1000, known: true} }, 15 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := coreServer()
				server.Put(configMaps, configMap("a", "1"))
				f := newFixture(t, server)
				store := f.store()
				synctest.Wait()
				lists, began := initialRequests(server), time.Now()
				h := c.before(uint64(store.Revision()))
				if err := stream.AwaitPredecessor(t.Context(), f.Stream, &h, configMaps); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began).Truncate(time.Second); took != c.took {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				if n := initialRequests(server) - lists; n != c.lists {
					t.Errorf("%d lists, want %d", n, c.lists)
				}
				if len(h.saw) != c.lists {
					t.Errorf("the next leaders are told %v", h.saw)
				}
			})
		})
	}
}
