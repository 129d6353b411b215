// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"

	"github.com/skep-operator/skep/resources/internal/workers"
)

// RunTogether runs functions at once, and returns when all have returned. A panic of one cancels the context of all, since
// the others must not use its incomplete state, and is the caller's.
func RunTogether(ctx context.Context, functions []func(context.Context)) {
	all := make([]workers.Worker, len(functions))
	for i, f := range functions {
		all[i] = workers.Worker{Run: f}
	}
	_ = workers.Run(ctx, workers.Forever, all...)
}
