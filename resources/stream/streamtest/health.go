// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import "sync"

// Health records what a stream says of its health. The zero Health is ready.
type Health struct {
	mu  sync.Mutex
	err error
	log []string
}

// OK implements stream.Health.
func (h *Health) OK(message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = nil
	h.log = append(h.log, "ok: "+message)
}

// Degraded implements stream.Health.
func (h *Health) Degraded(message string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	h.log = append(h.log, "degraded: "+message+": "+err.Error())
}

// Err is what degrades the stream now, nil if nothing does.
func (h *Health) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Log returns all reports up to now.
func (h *Health) Log() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.log...)
}
