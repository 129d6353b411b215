// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"

	"github.com/skep-operator/skep/runtime/health"
)

// missingJob degrades a queue that has keys and no job. It is guarded by the queue's lock.
type missingJob struct {
	started bool
	clear   func() // nil while no key waits
}

// keyAdded degrades health after a while, unless the job starts.
func (m *missingJob) keyAdded(r health.Reporter) {
	if m.clear == nil && !m.started {
		m.clear = health.ReportBlocked(health.NewContext(context.Background(), r), "job", "keys are queued, and no job runs the queue: declare cell.Job with the queue's Job")
	}
}

// jobStarted clears the report.
func (m *missingJob) jobStarted() {
	m.started = true
	if m.clear != nil {
		m.clear()
	}
}
