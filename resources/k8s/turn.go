// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"sync"
	"time"
)

// hold is the turn of work with objects that need much memory: as many copies of one are made as the work has steps, and such work is done by one at a time.
type hold struct {
	turn chan struct{} // of the process, with one place

	mu   sync.Mutex
	has  bool
	over bool // it has no turn from now on
}

// wait waits for the turn. The error is that of ctx.
func (h *hold) wait(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}: // also where ctx has ended: an answer is read
	default:
		select {
		case h.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		<-h.turn
		return context.Cause(ctx)
	}
	h.has = true
	return nil
}

func (h *hold) hasTurn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.has
}

// end gives the turn to others.
func (h *hold) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.has {
		<-h.turn
	}
	h.has, h.over = false, true
}

// manyBytes is from how much memory on a copy of an object needs the turn.
const manyBytes = 2 << 20

// leftBehind is after which time work that has to stop has no turn any more: its module may be built anew then, in the same process.
const leftBehind = 10 * time.Second

type holdKey struct{}

var largeTurn = make(chan struct{}, 1)

// WithTurn returns a context for requests whose objects stay in memory until release is called. The first one that needs two megabytes or more waits, before it
// is decoded, until no other work of the process has such an object: with ten of them at once there would be no memory left. Writes of a [Client] do so by themselves, and
// reads until the object is decoded: they do not wait again with such a context. It is for requests that are made one after the other, and release is to be called once, and soon: in the handler of one
// object. See docs/wire/k8s.md, K8S-26.
func WithTurn(ctx context.Context) (_ context.Context, release func()) {
	return withTurnOf(ctx, largeTurn)
}

// withTurnOf is WithTurn for the turn of a channel.
func withTurnOf(ctx context.Context, turn chan struct{}) (_ context.Context, release func()) {
	if h, _ := ctx.Value(holdKey{}).(*hold); h != nil {
		return ctx, func() {}
	}
	h := &hold{turn: turn}
	// A handler that does not return is left behind when it has to stop. Others go on without it.
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(leftBehind, h.end) })
	return context.WithValue(ctx, holdKey{}, h), func() {
		stop()
		h.end()
	}
}

// AwaitTurn waits for the turn of a context of [WithTurn] before other work than a request that needs so many bytes of memory, if these are two megabytes or more: what is planned
// and translated from large objects is as large as their copies. Without such a context it does not wait. The error is that of ctx.
func AwaitTurn(ctx context.Context, bytes int) error {
	h, _ := ctx.Value(holdKey{}).(*hold)
	if h == nil || h.hasTurn() || bytes < manyBytes {
		return nil
	}
	return h.wait(ctx)
}

// awaitTurn waits for the turn if a body that is about to be decoded, or was encoded, needs it. Without a hold it does not. The error is that of ctx.
func awaitTurn(ctx context.Context, body []byte) error {
	h, _ := ctx.Value(holdKey{}).(*hold)
	if h == nil || h.hasTurn() {
		return nil
	}
	return AwaitTurn(ctx, memoryOf(body))
}

// memoryOf estimates how much memory it needs to decode a JSON text into maps and lists: for an object of one field 336 bytes, for each further one 100 or more, for
// a list its head, and for an element of it, whatever it is, the places in lists that have grown beside its value.
func memoryOf(body []byte) int {
	size, inString := len(body), false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{':
			size += 350
		case c == '[':
			size += 40
		case c == ':':
			size += 60
		case c == ',':
			size += 70
		}
	}
	return size
}
