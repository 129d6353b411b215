// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// EventKind is what an [Event] is about.
type EventKind string

// The kinds of events. A phase, hook or term that failed has the kind of one that succeeded, and an error.
const (
	EventDeclared   EventKind = "declared"   // New read the list of cells
	EventConfigured EventKind = "configured" // the values of options are known
	EventSelected   EventKind = "selected"   // enabled modules and providers are known
	EventValidated  EventKind = "validated"  // values and rules are checked

	EventConstructed EventKind = "constructed" // a constructor returned
	EventBuilt       EventKind = "built"       // the constructors of the process or a term returned

	EventHookStarted EventKind = "hookStarted" // Start of a hook or job returned
	EventHookSlow    EventKind = "hookSlow"    // Start of a hook did not return within five seconds
	EventHookStopped EventKind = "hookStopped" // Stop of a hook or job returned

	EventStarted     EventKind = "started"     // all of the process started
	EventRunning     EventKind = "running"     // Run completed all phases
	EventStopping    EventKind = "stopping"    // Run begins to stop; the error is that of an interrupted start
	EventStopped     EventKind = "stopped"     // all of the process stopped
	EventTermEntered EventKind = "termEntered" // the term's modules were built and started
	EventTermLeft    EventKind = "termLeft"    // the term's modules stopped

	EventJobFailed     EventKind = "jobFailed"     // a run of a job returned an error
	EventModuleFailed  EventKind = "moduleFailed"  // a module panicked, or could not be built or started
	EventModuleStopped EventKind = "moduleStopped" // a module was stopped in order to be rebuilt
	EventModuleRebuilt EventKind = "moduleRebuilt" // a module that failed runs again
)

// Event is a step of a hive's life. Fields that do not apply to its kind are
// zero.
type Event struct {
	Kind   EventKind
	At     time.Time     // the end of the step
	Took   time.Duration // its duration
	Term   string        // "" in the process
	Module string        // id
	Name   string        // of the constructor or job; the health path of a hook
	Err    error         // nil after success

	// Of a failed job:
	Action   string // what the job does next, such as "will try again"
	Repeated bool   // the run before failed, too

	node *resolve.Node // of a constructor
}

// OnEvent calls f with every event, one at a time, in the goroutine of the step:
// f returns promptly and calls no method of the hive. The log, the start-up
// profile and the timings of the graph are made from the same events.
func OnEvent(f func(Event)) Option {
	return func(o *options) { o.onEvent = append(o.onEvent, f) }
}

// emit passes an event to all consumers.
func (h *Hive) emit(e Event) {
	e.At = time.Now()
	h.eventMu.Lock()
	defer h.eventMu.Unlock()
	h.profile.record(e)
	h.stats.record(e)
	h.logEvent(e)
	for _, f := range h.options.onEvent {
		f(e)
	}
}

// timed runs a step and emits its event.
func (h *Hive) timed(e Event, do func() error) error {
	began := time.Now()
	e.Err = do()
	e.Took = time.Since(began)
	h.emit(e)
	return e.Err
}

// slowHookLevel is the duration from which a hook is logged without --debug.
const slowHookLevel = 100 * time.Millisecond

// logEvent logs events that have a line.
func (h *Hive) logEvent(e Event) {
	log := h.log.Logger("hive")
	switch e.Kind {
	case EventHookStarted:
		logHook(log, e, lifecycle.Starting)
	case EventHookStopped:
		logHook(log, e, lifecycle.Stopping)
	case EventHookSlow:
		log.Warn("hook is starting for long", "hook", e.Name)
	case EventRunning:
		log.Info("started", "took", e.Took.Round(time.Millisecond).String(), "version", h.options.version)
	case EventStopping:
		if e.Err != nil {
			log.Info("stopped while starting", "error", e.Err)
		} else {
			log.Info("stopping")
		}
	case EventTermLeft:
		if e.Module != "" && e.Err != nil {
			log.Error("term left because its module failed", "term", e.Term, "module", e.Module, "error", e.Err)
		}
	case EventJobFailed:
		level := slog.LevelWarn
		if e.Repeated {
			level = slog.LevelDebug
		}
		h.log.Logger(e.Module).Log(context.Background(), level, "job failed", "job", e.Name, "action", e.Action, "error", e.Err)
	case EventModuleFailed:
		log := h.log.Logger(e.Module)
		if p := new(lifecycle.PanicError); errors.As(e.Err, &p) && p.SetAside { // its stack was logged with the object
			log.Warn("module is rebuilt, an object whose handling panicked is set aside", "error", e.Err)
		} else if errors.As(e.Err, &p) {
			log.Error("module panicked", "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
		} else {
			log.Error("module failed to start", "error", e.Err)
		}
	case EventModuleStopped:
		if e.Err != nil {
			log.Error("hook failed to stop", "module", e.Module, "error", e.Err)
		}
	case EventModuleRebuilt:
		log.Info("module rebuilt", "module", e.Module)
	}
}

func logHook(log *slog.Logger, e Event, phase lifecycle.Phase) {
	level := slog.LevelDebug
	if e.Took >= slowHookLevel {
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{slog.String("hook", e.Name), slog.String("phase", string(phase)), slog.Duration("took", e.Took)}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	log.LogAttrs(context.Background(), level, "hook done", attrs...)
}

// runtimeStats are the timings that the graph shows of a running hive.
type runtimeStats struct {
	mu    sync.Mutex
	built map[*resolve.Node]time.Duration
	steps map[string]time.Duration // by health path
}

func newRuntimeStats() *runtimeStats {
	return &runtimeStats{built: map[*resolve.Node]time.Duration{}, steps: map[string]time.Duration{}}
}

func (s *runtimeStats) record(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Kind {
	case EventConstructed:
		s.built[e.node] = e.Took
	case EventHookStarted:
		s.steps[e.Name] = e.Took
	}
}
