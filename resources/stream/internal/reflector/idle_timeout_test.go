// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"errors"
	"io"
	"testing"
	"time"
)

// K7 of the contract's tenants.md: a server is silent while a read waits for it, not while the reader is at work on what it has read.
func TestSilence(t *testing.T) {
	const limit = 20 * time.Millisecond
	in, out := io.Pipe()
	defer func() { _ = out.Close() }()
	b := newBody(t.Context())
	b.ReadCloser = in
	b.limitIdle(limit)
	for range 3 {
		go func() { _, _ = out.Write([]byte("x")) }()
		if _, err := b.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * limit) // the reader is at work
		if b.ctx.Err() != nil {
			t.Fatalf("while nothing is read: %v", b.cause(b.ctx.Err()))
		}
	}
	go func() {
		<-b.ctx.Done()
		_ = in.CloseWithError(b.ctx.Err())
	}()
	_, err := b.Read(make([]byte, 1))
	if silent := (errSilent{}); !errors.As(b.cause(err), &silent) || silent.limit != limit {
		t.Errorf("a read without an answer ends with %v", b.cause(err))
	}
	_ = b.Close()
}
