// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// A response takes at most checkTimeout. Each check has less, so that its error is the response.
const (
	checkTimeout = 2 * time.Second
	runTimeout   = checkTimeout - 300*time.Millisecond
)

// Check is the health check of the API. Concurrent requests share one.
type Check struct {
	CheckParams
	running singleflight.Group
}

// CheckParams are the dependencies of a Check.
type CheckParams struct {
	cell.In

	Server k8s.Server `optional:"true"`
	// Checks are those of enabled duties.
	Checks []k8s.HealthCheck `group:"health checks"`
}

// NewCheck returns a check of the API server and the duties.
func NewCheck(p CheckParams) *Check { return &Check{CheckParams: p} }

// off reports whether there is no Kubernetes API to check.
func (c *Check) off() bool { return c.Server == nil }

// Run returns the failure, at the latest after checkTimeout.
func (c *Check) Run(ctx context.Context) error {
	late := time.NewTimer(checkTimeout)
	defer late.Stop()
	answer := c.running.DoChan("", func() (any, error) { return nil, c.runAll(context.WithoutCancel(ctx)) })
	select {
	case result := <-answer:
		return result.Err
	case <-late.C:
		return fmt.Errorf("the health checks have no result after %s: one of them hangs", checkTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runAll runs the checks of duties, then that of the API server.
func (c *Check) runAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	for _, check := range c.Checks {
		if err := check.Check(ctx); err != nil {
			return fmt.Errorf("%s: %w", check.Name, err)
		}
	}
	if _, err := c.Server.Version(ctx); err != nil {
		return fmt.Errorf("unable to reach the API server %s: %w", c.Server.Address(), err)
	}
	return nil
}
