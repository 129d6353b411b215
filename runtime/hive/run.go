// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/internal/build"
	"github.com/skep-operator/skep/runtime/internal/plan"
)

// Build runs the constructors that hooks, jobs and invokes of the process
// need. Those of terms run when the term is entered. It fails with the outcome
// of the phases before, if they failed; otherwise with all constructors that
// failed.
func (h *Hive) Build() error {
	if err := h.Check(); err != nil {
		return err
	}
	return h.built.once(func() error {
		if err := h.log.Configure(h.logConfig()); err != nil {
			return err
		}
		s := h.newScope(h.orders[0], h.configValues())
		s.mu.Lock()
		defer s.mu.Unlock()
		h.process = s
		return paragraphs(h.aboutOptions(inOrder(s.build(nil)))...)
	})
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

// Start starts the hooks and jobs of the process, once. When one fails, what
// was started is stopped again. It builds first, and fails with the outcome of
// that, if it failed.
func (h *Hive) Start(ctx context.Context) error {
	if err := h.Build(); err != nil {
		return err
	}
	return h.started.once(func() error {
		h.logOptions()
		ctx, cancel := context.WithTimeoutCause(ctx, h.options.startLimit, errStartLimit)
		defer cancel()
		err := h.process.start(ctx)
		if err != nil {
			err = errors.Join(err, h.leaveTermsAfter(ctx))
		}
		h.writeProfile()
		return err
	})
}

// logOptions logs all options with their values, one line each in the form that
// users of the original know, and what is odd about the sources. Those that do
// nothing are left out unless somebody set them.
func (h *Hive) logOptions() {
	log := h.process.log()
	for _, w := range h.values.Warnings {
		log.Warn(w)
	}
	for _, e := range h.values.Entries() {
		if e.Option != nil && e.Option.Ignored && e.Source.Kind == config.FromDefault {
			continue
		}
		log.Info("  --"+e.Name+"='"+e.Value+"'", "source", e.Source.String())
	}
}

var errStartLimit = errors.New("the process took too long to start")

// leaveTermsAfter leaves what a start that failed has entered.
func (h *Hive) leaveTermsAfter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.options.stopLimit)
	defer cancel()
	return h.leaveTerms(ctx)
}

func (h *Hive) writeProfile() {
	file := h.ownConfig().ProfileStartup
	if file == "" {
		return
	}
	if err := h.profile.write(file); err != nil {
		h.process.log().Warn("the start-up profile cannot be written", "file", file, "error", err)
	}
}

// Stop stops what Start started, in reverse, and leaves terms that are still
// entered. It returns when all has ended, or ctx has. Stopping what is not
// started, or again, does nothing.
func (h *Hive) Stop(ctx context.Context) error {
	if !h.started.done || h.started.err != nil {
		return nil
	}
	return h.stopped.once(func() error {
		ctx, cancel := context.WithTimeout(ctx, h.options.stopLimit)
		defer cancel()
		return errors.Join(h.process.stop(ctx), h.leaveTerms(ctx))
	})
}

// Run starts, waits until ctx ends or a shutdown is asked for, and stops. The
// error is that of starting, the cause of the shutdown, or that of stopping.
func (h *Hive) Run(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a shutdown ends the start, too
		select {
		case <-h.shutdown.asked:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := h.Start(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		return err
	case err != nil && h.process != nil: // told to stop while starting
		h.process.log().Info("stopped while starting", "error", err)
		return h.shutdown.why()
	case err != nil:
		return err
	}
	h.process.log().Info("started", "took", time.Since(began).Round(time.Millisecond).String(), "version", h.options.version)
	<-ctx.Done()
	h.process.log().Info("stopping")
	return errors.Join(h.shutdown.why(), h.Stop(context.WithoutCancel(ctx)))
}

// shutdown is a request to stop. The first one counts.
type shutdown struct {
	asked chan struct{}
	once  sync.Once
	cause error
}

// requestShutdown is the lifecycle.Shutdown of the hive.
func (h *Hive) requestShutdown(cause error) {
	h.shutdown.once.Do(func() {
		h.shutdown.cause = cause
		close(h.shutdown.asked)
	})
}

// why is the cause of the shutdown, if there was one.
func (s *shutdown) why() error {
	select {
	case <-s.asked:
		return s.cause
	default:
		return nil
	}
}
