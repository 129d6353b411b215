// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// lineage notices when etcd's data is replaced: by a cluster made anew, or by
// an older state that was restored. Watches would wait in silence then, for
// revisions that are long in coming. It is safe for concurrent use.
type lineage struct {
	mu       sync.Mutex
	cluster  uint64
	revision int64 // the newest that was seen
	replaced chan struct{}
	onChange []func()
}

func newLineage() *lineage { return &lineage{replaced: make(chan struct{})} }

// newest is the newest revision seen so far.
func (l *lineage) newest() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision
}

// current ends when the data is replaced.
func (l *lineage) current() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replaced
}

// then calls f, which must not block, whenever the data was replaced.
func (l *lineage) then(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onChange = append(l.onChange, f)
}

// saw takes in the header of an answer. began is the newest revision that was
// known when the request was made: a newest answer cannot be older than that.
func (l *lineage) saw(h *pb.ResponseHeader, began int64, newest bool) {
	if h == nil {
		return
	}
	l.mu.Lock()
	other := l.cluster != 0 && h.ClusterId != 0 && h.ClusterId != l.cluster
	older := newest && h.Revision < began && began <= l.revision
	if h.ClusterId != 0 {
		l.cluster = h.ClusterId
	}
	if !other && !older {
		l.revision = max(l.revision, h.Revision)
		l.mu.Unlock()
		return
	}
	l.revision = h.Revision
	close(l.replaced)
	l.replaced = make(chan struct{})
	callbacks := l.onChange
	l.mu.Unlock()
	for _, f := range callbacks {
		f()
	}
}
