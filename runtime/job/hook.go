// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import (
	"context"
	"time"
)

// jobHook is a job that starts and stops by itself.
type jobHook struct {
	task task
	stop context.CancelFunc
}

// Start implements lifecycle.Hook.
func (h *jobHook) Start(context.Context) error {
	var ctx context.Context
	ctx, h.stop = context.WithCancel(context.Background())
	h.task.launch(ctx, func(*task) { h.stop() })
	return nil
}

// Stop implements lifecycle.Hook.
func (h *jobHook) Stop(ctx context.Context) error {
	requested := time.Now()
	h.stop()
	return h.task.wait(ctx, requested)
}
