// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"net/http"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// remembered is how many requests a proxy remembers.
const remembered = 1 << 15

// ring remembers the last requests.
type ring struct {
	mu   sync.Mutex
	kept []control.Request // request seq is at (seq-1) % remembered
	last int64
}

func newRing() *ring { return &ring{} }

// entry is one request's place in the ring.
type entry struct {
	ring *ring
	seq  int64
}

func (r *ring) add(req *http.Request, f facts) entry {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	record := control.Request{
		Seq: r.last, Received: now,
		Method: req.Method, Path: req.URL.RequestURI(), UserAgent: f.userAgent,
		Verb: f.verb, Group: f.group, Resource: f.resource, Subresource: f.subresource,
		Namespace: f.namespace, Name: f.name,
	}
	if len(r.kept) < remembered {
		r.kept = append(r.kept, record)
	} else {
		r.kept[(r.last-1)%remembered] = record
	}
	return entry{r, r.last}
}

// update changes the record unless it is forgotten.
func (e entry) update(change func(*control.Request)) {
	e.ring.mu.Lock()
	defer e.ring.mu.Unlock()
	if record := &e.ring.kept[(e.seq-1)%remembered]; record.Seq == e.seq {
		change(record)
	}
}

func (e entry) fired(rules []string) {
	if len(rules) > 0 {
		e.update(func(r *control.Request) { r.Rules = append(r.Rules, rules...) })
	}
}

func (e entry) answered(status int) {
	now := time.Now()
	e.update(func(r *control.Request) {
		r.Status = status
		if r.Answered.IsZero() {
			r.Answered = now
		}
	})
}

func (e entry) spoilt(with control.SpoiltAnswer, status int) {
	e.update(func(r *control.Request) { r.Spoilt, r.Status = with, status })
}

func (e entry) finish() {
	e.update(func(r *control.Request) {
		r.Done = true
		if r.Status == 0 {
			r.Status = -1
		}
	})
}

// after lists what came after a sequence number and is remembered.
func (r *ring) after(seq int64) []control.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := max(seq, r.last-int64(len(r.kept)), 0)
	found := make([]control.Request, 0, max(0, r.last-first))
	for s := first; s < r.last; s++ {
		record := r.kept[s%remembered]
		record.Rules = append([]string(nil), record.Rules...)
		found = append(found, record)
	}
	return found
}
