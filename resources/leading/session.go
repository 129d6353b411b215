// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leading

import (
	"context"

	"k8s.io/client-go/rest"
)

// Session is how the cell that holds the lease reaches the API server, and how it lets
// the modules of the term write.
type Session interface {
	// LeaseConfig is for a client of the lease alone: it shares neither its connection
	// nor its rate, and its writes are not fenced. In a dry run it reaches nothing.
	LeaseConfig() *rest.Config
	// Open lets the modules of the next term write while the fence is open. before is
	// the progress of leaders since this process led last, nil if there were none.
	Open(f *Fence, before *WriteProgress) error
	// DrainWrites returns when no write can take effect any more, unanswered ones
	// included, and their outcome is known, or when ctx ends. The term has ended, its
	// fence is open.
	DrainWrites(ctx context.Context)
	// WriteProgress is how far writes went, for the next leader. The term has ended.
	WriteProgress() WriteProgress
}
