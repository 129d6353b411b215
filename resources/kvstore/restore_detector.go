// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// restoreDetector detects that etcd's data was replaced: by a new cluster or by a
// restored snapshot. A watch would then wait for revisions far in the future. It is
// safe for concurrent use.
type restoreDetector struct {
	mu        sync.Mutex
	cluster   uint64
	revision  int64 // the latest seen
	restored  chan struct{}
	callbacks []func()
}

func newRestoreDetector() *restoreDetector { return &restoreDetector{restored: make(chan struct{})} }

// latestRevision returns the latest revision seen so far.
func (d *restoreDetector) latestRevision() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.revision
}

// dataRestored returns a channel that is closed when the data is replaced.
func (d *restoreDetector) dataRestored() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.restored
}

// onRestore calls f whenever the data was replaced. f must not block.
func (d *restoreDetector) onRestore(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.callbacks = append(d.callbacks, f)
}

// observe evaluates the header of an answer. began is the latest revision known when
// the request was made: a linearizable answer cannot be older.
func (d *restoreDetector) observe(h *pb.ResponseHeader, began int64, linearizable bool) {
	if h == nil {
		return
	}
	d.mu.Lock()
	other := d.cluster != 0 && h.ClusterId != 0 && h.ClusterId != d.cluster
	older := linearizable && h.Revision < began && began <= d.revision
	if h.ClusterId != 0 {
		d.cluster = h.ClusterId
	}
	if !other && !older {
		d.revision = max(d.revision, h.Revision)
		d.mu.Unlock()
		return
	}
	d.revision = h.Revision
	close(d.restored)
	d.restored = make(chan struct{})
	callbacks := d.callbacks
	d.mu.Unlock()
	for _, f := range callbacks {
		f()
	}
}

// restorePause is for how long replaced data have one line of the log: each answer of an etcd, such as that of another cluster, may be of other data.
const restorePause = time.Minute

// restoreLines decides which of the times when the data were replaced have a line of the log. It is safe for concurrent use.
type restoreLines struct {
	mu      sync.Mutex
	until   time.Time // when the next line is written
	skipped int       // since the last line
}

func (l *restoreLines) next(now time.Time) (skipped int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.until) {
		l.skipped++
		return 0, false
	}
	skipped, l.skipped, l.until = l.skipped, 0, now.Add(restorePause)
	return skipped, true
}
