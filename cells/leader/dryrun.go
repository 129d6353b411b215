// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"context"
	"errors"

	"github.com/skep-operator/skep/resources/k8s"
)

var errNoServer = errors.New("no API server that can be used answers")

// plan runs the term once as a dry run, whoever leads, and stops the process with
// what it found out. No lease is looked at, or taken.
func (e *elector) plan(ctx context.Context) error {
	fence := k8s.Unfenced()
	defer fence.Close()
	report, err := e.Plan.Make(ctx, func(ctx context.Context) error {
		if !e.awaitServer(ctx) {
			return errNoServer
		}
		if err := e.Leading.Open(fence, &k8s.Written{}); err != nil {
			return err
		}
		return e.Term.Enter(ctx)
	})
	e.leave(ctx)
	switch {
	case err == nil:
		e.Stop(report)
	case ctx.Err() == nil:
		e.Stop(err)
	}
	<-ctx.Done()
	return ctx.Err()
}
