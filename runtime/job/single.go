// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

import "context"

// Single is a job that starts and stops by itself. It implements
// lifecycle.Hook.
type Single struct {
	task task
	stop context.CancelFunc
}

// Start runs the job.
func (s *Single) Start(context.Context) error {
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.task.launch(ctx, func(*task) { s.stop() })
	return nil
}

// Stop ends the job and waits for it. If it still runs when ctx ends, it is
// left behind and named in the error, a lifecycle.HangError.
func (s *Single) Stop(ctx context.Context) error {
	s.stop()
	return s.task.wait(ctx)
}
