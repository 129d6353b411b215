// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package features

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

const (
	// versionInterval is how often the version of the API server is read: it may be upgraded while the operator runs.
	versionInterval = time.Hour
	// versionPause is the time to the next attempt while it cannot be read.
	versionPause = 10 * time.Second
	// versionTimeout bounds an attempt.
	versionTimeout = 10 * time.Second
)

type versionParams struct {
	cell.In

	Server  k8s.Server `optional:"true"` // nil: Kubernetes is not in use
	Metrics *featureMetrics
	Log     *slog.Logger
}

// newVersionJob keeps the metric of the version of the API server. That the server cannot be reached is not reported: it degrades the connection, and
// nothing else depends on this.
func newVersionJob(p versionParams) job.Job {
	if p.Server == nil {
		return job.Job{}
	}
	return job.OneShot(func(ctx context.Context) error {
		for {
			pause := versionInterval
			if err := p.showVersion(ctx); err != nil {
				p.Log.Debug("reading the version of the API server failed, retrying", "error", err)
				pause = versionPause
			}
			if !job.Sleep(ctx, pause) {
				return ctx.Err()
			}
		}
	})
}

// showVersion sets the metric. Another version, as after an upgrade, replaces the one before.
func (p versionParams) showVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	info, err := p.Server.Version(ctx)
	if err != nil {
		return fmt.Errorf("reading the version of the API server: %w", err)
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return fmt.Errorf("reading the version %q of the API server: %w", info.GitVersion, err)
	}
	p.Metrics.Kubernetes.Reset()
	p.Metrics.Kubernetes.WithLabelValues(fmt.Sprintf("%d.%d.%d", v.Major(), v.Minor(), v.Patch())).Set(1)
	return nil
}
