// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package idle has a hook and a job that do nothing.
package idle

import (
	"context"
	"time"

	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Hook does nothing.
func Hook() lifecycle.Hook { return lifecycle.Funcs{} }

// Job does nothing once an hour.
func Job() job.Job {
	return job.Timer(func(context.Context) error { return nil }, time.Hour)
}
