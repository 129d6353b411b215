// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"context"
	"fmt"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// checkTimeout bounds a health check: a probe has three seconds.
const checkTimeout = 2 * time.Second

// check is what /healthz asks.
type check struct{ checkParams }

type checkParams struct {
	cell.In

	Server k8s.Server `optional:"true"`
	// Checks of duties that the contract has; each is asked only where its duty
	// is on.
	Checks []k8s.HealthCheck `group:"health checks"`
}

func newCheck(p checkParams) *check { return &check{p} }

// off reports whether there is nothing to be healthy about: no Kubernetes.
func (c *check) off() bool { return c.Server == nil }

func (c *check) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
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
