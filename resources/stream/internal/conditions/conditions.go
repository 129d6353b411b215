// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package conditions keeps what is wrong with a stream, and reports it to its health and its log.
package conditions

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Health takes the state of a stream, as stream.Health.
type Health interface {
	OK(message string)
	Degraded(message string, err error)
}

// The conditions of a connection.
const (
	Connection = "connection"
	Resource   = "resource"
)

// Set is what degrades a stream at the moment, by name. Health gets all of it as
// one state; the log gets a line when a condition comes or goes. It is safe for
// concurrent use.
type Set struct {
	log    *slog.Logger
	health Health // nil: health is not reported

	changed atomic.Bool

	mu       sync.Mutex
	good     string // the message when nothing is wrong; "" is none
	wrong    map[string]error
	warnings []warning // to be logged

	reporting sync.Mutex // around all that follows and the calls of log and health
	logged    map[string]error
	missing   *time.Timer // until it is logged that the kind is not defined; nil: it is not missing, or was logged
	reported  string
}

// New makes a set without conditions. Without health they are only logged.
func New(log *slog.Logger, health Health) *Set {
	return &Set{log: log, health: health, wrong: map[string]error{}, logged: map[string]error{}}
}

// Set sets the condition of this name; nil removes it. The caller may hold locks,
// and calls Report when it holds none.
func (c *Set) Set(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.wrong, name)
	} else {
		c.wrong[name] = err
	}
	c.changed.Store(true)
}

// warning is something for the log that does not degrade the stream.
type warning struct {
	text string
	args []any
}

// Warn queues a line for the log. The caller may hold locks, as with Set.
func (c *Set) Warn(text string, args ...any) {
	c.mu.Lock()
	c.warnings = append(c.warnings, warning{text, args})
	c.mu.Unlock()
	c.changed.Store(true)
}

// SetAndReport is Set and Report.
func (c *Set) SetAndReport(name string, err error) {
	c.Set(name, err)
	c.Report()
}

// SetOK sets the message when nothing is wrong.
func (c *Set) SetOK(message string) {
	c.mu.Lock()
	c.good = message
	c.mu.Unlock()
	c.changed.Store(true)
}

// Clear removes the conditions of a stream that has stopped.
func (c *Set) Clear() {
	c.reporting.Lock()
	c.logged = map[string]error{} // it has not recovered: it is not in use
	c.stopMissing()
	c.reporting.Unlock()
	c.mu.Lock()
	clear(c.wrong)
	c.mu.Unlock()
	c.SetOK("not in use")
	c.Report()
}

// Report logs what has changed, and passes it to health.
func (c *Set) Report() {
	if !c.changed.Load() {
		return
	}
	c.reporting.Lock()
	defer c.reporting.Unlock()
	c.changed.Store(false)
	c.mu.Lock()
	good, wrong, warnings := c.good, maps.Clone(c.wrong), c.warnings
	c.warnings = nil
	c.mu.Unlock()
	for _, r := range warnings {
		c.log.Warn(r.text, r.args...)
	}
	c.logChanges(wrong)
	switch {
	case c.health == nil:
	case len(wrong) > 0:
		names := slices.Sorted(maps.Keys(wrong))
		errs := make([]error, 0, len(names))
		for _, name := range names {
			errs = append(errs, wrong[name])
		}
		message, err := strings.Join(names, ", "), errors.Join(errs...)
		c.reportOnce(message+"\n"+err.Error(), func() { c.health.Degraded(message, err) })
	case good != "":
		c.reportOnce(good, func() { c.health.OK(good) })
	}
}

func (c *Set) logChanges(wrong map[string]error) {
	for name, err := range wrong {
		if _, known := c.logged[name]; known {
			continue
		}
		if name == Resource {
			c.missing = time.AfterFunc(patience, c.logMissing)
		} else {
			c.log.Log(context.Background(), logLevel(name, err), "stream degraded", "condition", name, "error", err)
		}
	}
	for name, err := range c.logged {
		if _, still := wrong[name]; !still && (name != Resource || !c.stopMissing()) {
			c.log.Log(context.Background(), min(slog.LevelInfo, logLevel(name, err)), "stream recovered", "condition", name)
		}
	}
	c.logged = wrong
}

// patience is how long a kind may be without a definition until the log says so: on a fresh cluster the operator makes those of its own kinds
// within seconds.
const patience = 10 * time.Second

// logMissing logs that the kind is still not defined.
func (c *Set) logMissing() {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	if err, still := c.logged[Resource]; still && c.missing != nil {
		c.missing = nil
		c.log.Log(context.Background(), logLevel(Resource, err), "stream degraded", "condition", Resource, "error", err)
	}
}

// stopMissing reports whether it was not logged yet that the kind is not defined, and will not be. The caller holds reporting.
func (c *Set) stopMissing() (unlogged bool) {
	unlogged = c.missing != nil
	if unlogged {
		c.missing.Stop()
		c.missing = nil
	}
	return unlogged
}

// logLevel is the level that a condition is logged at. A fresh cluster has no
// definitions yet, and an API server that asks for patience gets it.
func logLevel(name string, err error) slog.Level {
	switch {
	case name == Resource:
		return slog.LevelInfo
	case apierrors.IsTooManyRequests(err):
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

func (c *Set) reportOnce(text string, call func()) {
	if c.reported != text {
		c.reported = text
		call()
	}
}

// Is reports whether the condition of this name is an error of this sort.
func (c *Set) Is(name string, sort func(error) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sort(c.wrong[name])
}

// List returns the conditions as texts.
func (c *Set) List() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]string, len(c.wrong))
	for name, err := range c.wrong {
		out[name] = err.Error()
	}
	return out
}

// Why returns the conditions as a part of an error text, "" if there are none.
func (c *Set) Why() string {
	var texts []string
	for name, text := range c.List() {
		texts = append(texts, name+": "+text)
	}
	if texts == nil {
		return ""
	}
	slices.Sort(texts)
	return " (" + strings.Join(texts, "; ") + ")"
}
