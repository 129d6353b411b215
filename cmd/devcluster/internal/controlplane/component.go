// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package controlplane

import (
	"context"
	"errors"
	"fmt"
)

// component is one run of a part of the control plane.
type component struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // how it ended; read it once done is closed
}

// run starts a component; if it ends by itself, failed learns how.
func run(name string, failed chan<- error, body func(context.Context) error) *component {
	ctx, cancel := context.WithCancel(context.Background())
	c := &component{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = body(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case failed <- fmt.Errorf("the %s ended: %w", name, c.err):
		default: // one failure is enough
		}
	}()
	return c
}

// stop ends the component and waits for it, as long as ctx allows.
func (c *component) stop(ctx context.Context) error {
	c.cancel()
	select {
	case <-c.done:
		if errors.Is(c.err, context.Canceled) {
			return nil
		}
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
