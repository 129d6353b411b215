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
	"github.com/skep-operator/skep/runtime/internal/resolve"
)

// Build runs the constructors that hooks, jobs and invokes of the process
// need. Those of terms run when the term is entered. It fails with the outcome
// of the phases before, if they failed; otherwise with all constructors that
// failed.
func (h *Hive) Build() error {
	began := time.Now()
	if err := h.Check(); err != nil {
		return err
	}
	return h.built.once(func() error {
		defer timeOf(h.own.BuildDuration, began)
		if err := h.log.Configure(h.logConfig()); err != nil {
			return err
		}
		s := h.newScope(h.orders[0], h.configValues())
		s.mu.Lock()
		defer s.mu.Unlock()
		h.process = s
		return joinErrors(h.toConfigReport(inDeclarationOrder(s.build(nil)))...)
	})
}

// configValues are the filled config structs as values of their nodes.
func (h *Hive) configValues() *build.Values {
	values := build.NewValues(nil)
	for _, n := range h.graph.Nodes {
		if n.Kind == resolve.Config {
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
		h.reportQuestionable()
		ctx, cancel := context.WithTimeoutCause(ctx, h.options.startTimeout, errStartTimeout)
		defer cancel()
		began := time.Now()
		err := h.timed(Event{Kind: EventStarted}, func() error { return h.process.start(ctx) })
		timeOf(h.own.StartDuration, began)
		if err != nil {
			err = errors.Join(err, h.leaveTermsAfter(ctx))
		}
		h.writeProfile()
		return err
	})
}

// logOptions logs warnings about the configuration and all options with their
// values, one line each in the original's form. Options without effect are left
// out unless they are set.
func (h *Hive) logOptions() {
	log := h.process.log()
	for _, w := range h.generalWarnings() {
		log.Warn(w)
	}
	for _, q := range h.questionable {
		h.log.Logger(q.module).Warn(q.problem.Message())
	}
	for _, e := range h.values.Entries() {
		if e.Option != nil && e.Option.Ignored && e.Source.Kind == config.FromDefault {
			continue
		}
		log.Info("  --"+e.Name+"='"+e.Value+"'", "source", e.Source.String())
	}
}

var errStartTimeout = errors.New("the process took too long to start")

// leaveTermsAfter leaves the terms that a failed start has entered.
func (h *Hive) leaveTermsAfter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.options.stopTimeout)
	defer cancel()
	return h.leaveTerms(ctx)
}

func (h *Hive) writeProfile() {
	file := h.ownConfig().ProfileStartup
	if file == "" {
		return
	}
	if err := h.profile.write(file); err != nil {
		h.process.log().Warn("cannot write the start-up profile", "file", file, "error", err)
	}
}

// Stop stops what Start started, in reverse, and leaves terms that are still
// entered. It returns when all has stopped, or ctx has ended. Without a
// successful Start, and the second time, it does nothing.
func (h *Hive) Stop(ctx context.Context) error {
	if !h.started.done || h.started.err != nil {
		return nil
	}
	return h.stopped.once(func() error {
		ctx, cancel := context.WithTimeout(ctx, h.options.stopTimeout)
		defer cancel()
		return h.timed(Event{Kind: EventStopped}, func() error { return errors.Join(h.process.stop(ctx), h.leaveTerms(ctx)) })
	})
}

// Run starts, waits until ctx ends or a shutdown is requested, and stops. The
// error is that of starting, the cause of the shutdown, or that of stopping.
func (h *Hive) Run(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a shutdown interrupts the start, too
		select {
		case <-h.shutdown.requested:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := h.Start(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		return err
	case err != nil && h.process != nil: // interrupted
		h.emit(Event{Kind: EventStopping, Err: err})
		return h.shutdown.err()
	case err != nil:
		return err
	}
	took := time.Since(began)
	h.emit(Event{Kind: EventRunning, Took: took})
	<-ctx.Done()
	h.emit(Event{Kind: EventStopping})
	return errors.Join(h.shutdown.err(), h.Stop(context.WithoutCancel(ctx)))
}

// shutdown is a request to stop. The first one counts.
type shutdown struct {
	requested chan struct{}
	once      sync.Once
	cause     error
}

// requestShutdown is the lifecycle.Shutdown of the hive.
func (h *Hive) requestShutdown(cause error) {
	h.shutdown.once.Do(func() {
		h.shutdown.cause = cause
		close(h.shutdown.requested)
	})
}

// err is the cause of the shutdown, if there was one.
func (s *shutdown) err() error {
	select {
	case <-s.requested:
		return s.cause
	default:
		return nil
	}
}
