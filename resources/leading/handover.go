// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leading

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Handover reports to a module of the term what leaders before it wrote.
type Handover interface {
	// PredecessorRevision returns the resourceVersion up to which leaders before this
	// one wrote objects of a resource. When that is not known, known is false: only a
	// view read from now on shows all of it. It may wait for an unanswered write of an
	// earlier term of this process.
	PredecessorRevision(ctx context.Context, resource schema.GroupVersionResource) (revision uint64, known bool, err error)
	// WasLeader reports whether this process has led before, so that its streams are
	// warm.
	WasLeader() bool
	// RecordSynced records for the next leaders up to which resourceVersion a complete
	// view showed writes, where PredecessorRevision did not know. Later it records up to
	// which one a decision depends on objects that others wrote.
	RecordSynced(resource schema.GroupVersionResource, revision uint64)
}

// handover implements Handover for one module.
type handover struct {
	tracker *Tracker
	read    Reader
}

// NewHandover returns the handover of a module, whose client reads.
func NewHandover(t *Tracker, read Reader) Handover { return &handover{t, read} }

func (h *handover) PredecessorRevision(ctx context.Context, resource schema.GroupVersionResource) (uint64, bool, error) {
	for {
		revision, known, pending, since := h.tracker.get(resource)
		if pending == nil || !known {
			return revision, known, nil
		}
		if err := h.tracker.resolve(ctx, *pending, since, h.read); err != nil {
			return 0, false, err
		}
	}
}

func (h *handover) WasLeader() bool {
	h.tracker.mu.Lock()
	defer h.tracker.mu.Unlock()
	return h.tracker.terms > 1
}

func (h *handover) RecordSynced(resource schema.GroupVersionResource, revision uint64) {
	h.tracker.recordSynced(resource, revision)
}
