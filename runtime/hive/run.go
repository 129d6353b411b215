// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"errors"
	"time"

	"github.com/skep-operator/skep/runtime/internal/build"
	"github.com/skep-operator/skep/runtime/internal/plan"
)

// Build runs the constructors that hooks, jobs and invokes of the process
// need. Those of terms run when the term is entered. It fails with the outcome
// of the phases before, if they failed.
func (h *Hive) Build() error {
	if err := h.Check(); err != nil {
		return err
	}
	return h.built.once(func() error {
		defer h.profile.time("build", "")()
		if err := h.log.Configure(h.logConfig()); err != nil {
			return err
		}
		h.process = h.newScope(h.orders[0], h.configValues())
		return firstFailures(h.process.build())
	})
}

// TryTerms builds every term once and throws it away, to find constructors
// that fail. Nothing is started. It follows Build.
func (h *Hive) TryTerms() error {
	var errs []error
	for _, order := range h.orders[1:] {
		s := h.newScope(order, h.process.values)
		errs = append(errs, firstFailures(s.build()))
		s.forgetTerm()
	}
	return errors.Join(errs...)
}

// configValues are the filled config structs as values of their nodes.
func (h *Hive) configValues() *build.Values {
	values := build.NewValues(nil)
	for _, n := range h.plan.Nodes {
		if n.Kind == plan.Config {
			v, _ := h.values.Struct(n.Results[0].Key.Type)
			values.Set(n, v)
		}
	}
	return values
}

// firstFailures tells each failed function once, not again for all that need
// it.
func firstFailures(failed map[*plan.Node]error) error {
	var errs []error
	told := map[*plan.Node]bool{}
	for _, err := range failed {
		if e := new(build.Error); errors.As(err, &e) {
			if told[e.Node] {
				continue
			}
			told[e.Node] = true
			err = e
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Start starts the hooks and jobs of the process. When one fails, what was
// started is stopped again.
func (h *Hive) Start(ctx context.Context) error {
	if err := h.Build(); err != nil {
		return err
	}
	h.logOptions()
	ctx, cancel := context.WithTimeoutCause(ctx, h.options.startLimit, errStartLimit)
	defer cancel()
	err := h.process.start(ctx)
	if file := h.ownConfig().ProfileStartup; file != "" {
		if werr := h.profile.write(file); werr != nil {
			h.process.log().Warn("the start-up profile cannot be written", "file", file, "error", werr)
		}
	}
	return err
}

var errStartLimit = errors.New("the process took too long to start")

// Stop stops what Start started, in reverse. It returns when all has ended, or
// ctx has.
func (h *Hive) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.options.stopLimit)
	defer cancel()
	return h.process.stop(ctx)
}

// Run starts, waits until ctx ends or a shutdown is asked for, and stops. The
// error is that of starting, the cause of the shutdown, or that of stopping.
func (h *Hive) Run(ctx context.Context) error {
	began := time.Now()
	if err := h.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while starting
		}
		return err
	}
	h.process.log().Info("started", "took", time.Since(began).Round(time.Millisecond).String(), "version", h.options.version)
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-h.shutdown:
	}
	h.process.log().Info("stopping")
	return errors.Join(cause, h.Stop(context.WithoutCancel(ctx)))
}

// requestShutdown is the lifecycle.Shutdown of the hive. The first request
// counts.
func (h *Hive) requestShutdown(cause error) {
	select {
	case h.shutdown <- cause:
	default:
	}
}
