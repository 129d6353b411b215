// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/skep-operator/skep/runtime/health"
)

// MaxValue is the most bytes of a value that is written: etcd refuses requests of more than 1.5 MiB, unless it is configured otherwise. A
// duty whose values follow from what tenants write keeps below it.
const MaxValue = maxRequest - 4<<10

// maxRequest leaves 16 KiB of etcd's limit for what surrounds keys and values.
const maxRequest = 1536<<10 - 16<<10

// TooLargeError says that a key is not written since etcd takes no request of that size. To try again makes no sense while the value is
// the same.
type TooLargeError struct {
	Key     string
	Size    int  // of key and value
	Refused bool // etcd has refused it: its limit is lower than usual
}

func (e *TooLargeError) Error() string {
	limit := fmt.Sprintf("at most %d are written", maxRequest)
	if e.Refused {
		limit = "etcd refuses that (its option --max-request-bytes)"
	}
	return fmt.Sprintf("the key %s is not written: it has %d bytes, and %s", e.Key, e.Size, limit)
}

func (w Write) size() int { return len(w.key) + len(w.value) }

// largest is the error for writes that are too large, which names the largest of them.
func largest(writes []Write, refused bool) *TooLargeError {
	w := slices.MaxFunc(writes, func(a, b Write) int { return a.size() - b.size() })
	return &TooLargeError{Key: w.key, Size: w.size(), Refused: refused}
}

// checkSize returns an error if writes are too large for a request.
func checkSize(writes []Write) error {
	size := 0
	for _, w := range writes {
		size += w.size()
	}
	if size > maxRequest {
		return largest(writes, false)
	}
	return nil
}

// isSizeError reports whether a request was refused for its size, by etcd or before it was sent.
func isSizeError(err error) bool {
	return errors.Is(err, rpctypes.ErrRequestTooLarge) || err != nil && strings.Contains(err.Error(), "message larger than max")
}

// SizeReport names in health what is not written, or not as a whole, since etcd takes no key of its size. It is safe for concurrent use.
type SizeReport struct {
	health health.Reporter
	what   string

	mu    sync.Mutex
	texts map[string]string
}

// NewSizeReport returns a report of nothing; what is the plural of what it names.
func NewSizeReport(h health.Reporter, what string) *SizeReport {
	return &SizeReport{health: h.Child("too-large"), what: what, texts: map[string]string{}}
}

// Set records a name with what is to be said of it, "" for one that is written as a whole. It returns whether that is new.
func (r *SizeReport) Set(name, text string) (isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.texts[name] == text {
		return false
	}
	if delete(r.texts, name); text != "" {
		r.texts[name] = text
	}
	r.show()
	return true
}

// Has reports whether a name is recorded.
func (r *SizeReport) Has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.texts[name] != ""
}

// maxNamed is how many names health has.
const maxNamed = 5

// show is called with the lock held.
func (r *SizeReport) show() {
	if len(r.texts) == 0 {
		r.health.OK("")
		return
	}
	names := slices.Sorted(maps.Keys(r.texts))
	var texts []string
	for _, name := range names[:min(len(names), maxNamed)] {
		texts = append(texts, fmt.Sprintf("%s (%s)", name, r.texts[name]))
	}
	if more := len(names) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	r.health.Degraded(fmt.Sprintf("%s are not written, or not as a whole, since etcd takes no key of their size: %s", r.what, strings.Join(texts, ", ")), nil)
}

// refuse records that a name is too large, and is as it is to be.
func (s *syncer) refuse(t syncItem, value []byte, why *TooLargeError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if want, wanted := s.state.desired[t.name]; !wanted || !bytes.Equal(want, value) {
		s.queue.Add(t) // it has another value by now
		return
	}
	s.client.log.Warn("a key is not written", "error", why)
	s.refused.Set(s.prefix+t.name, fmt.Sprintf("%d bytes", why.Size))
	s.keep(t)
}

// keep has a name that cannot be written stay as it is in etcd. The caller holds the lock.
func (s *syncer) keep(t syncItem) {
	if is, exists := s.state.observed[t.name]; exists {
		s.client.leases.adopt(s.prefix+t.name, is.value, is.lease, is.revision)
	}
	s.markDone(t.name)
}
