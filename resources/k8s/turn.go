// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import "context"

// hold is the turn of work with objects that need much memory: as many copies of one are made as the work has steps, and such work is done by one at a time.
type hold struct {
	turn chan struct{} // of the process, with one place
	has  bool
}

// manyBytes is from how much memory on a copy of an object needs the turn.
const manyBytes = 2 << 20

type holdKey struct{}

var largeTurn = make(chan struct{}, 1)

// WithTurn returns a context for requests whose objects stay in memory until release is called. The first one that needs two megabytes or more waits, before it
// is decoded, until no other work of the process has such an object: with ten of them at once there would be no memory left. Writes of a [Client] do so by themselves, and
// reads until the object is decoded: they do not wait again with such a context. It is for requests that are made one after the other, and release is to be called once, and soon: in the handler of one
// object. See docs/wire/k8s.md, K8S-26.
func WithTurn(ctx context.Context) (_ context.Context, release func()) {
	if h, _ := ctx.Value(holdKey{}).(*hold); h != nil {
		return ctx, func() {}
	}
	h := &hold{turn: largeTurn}
	return context.WithValue(ctx, holdKey{}, h), func() {
		if h.has {
			<-h.turn
		}
	}
}

// awaitTurn waits for the turn if a body that is about to be decoded, or was encoded, needs it. Without a hold it does not. The error is that of ctx.
func awaitTurn(ctx context.Context, body []byte) error {
	h, _ := ctx.Value(holdKey{}).(*hold)
	if h == nil || h.has || memoryOf(body) < manyBytes {
		return nil
	}
	select {
	case h.turn <- struct{}{}:
		h.has = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
