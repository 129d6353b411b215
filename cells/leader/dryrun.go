// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"context"
	"errors"

	"github.com/skep-operator/skep/resources/leading"
)

var errNoServer = errors.New("no usable API server responds")

// dryRun runs the term once as a dry run, whichever replica leads, and stops the process with the report. It neither reads
// nor acquires the lease.
func (e *elector) dryRun(ctx context.Context) error {
	fence := leading.Unfenced()
	defer fence.Close()
	report, err := e.Plan.Make(ctx, func(ctx context.Context) error {
		if !e.awaitServer(ctx) {
			return errNoServer
		}
		if err := e.Leading.Open(fence, &leading.WriteProgress{}); err != nil {
			return err
		}
		return e.Term.Enter(ctx)
	})
	e.leaveTerm(ctx)
	switch {
	case err == nil:
		e.Stop(report)
	case ctx.Err() == nil:
		e.Stop(err)
	}
	<-ctx.Done()
	return ctx.Err()
}
