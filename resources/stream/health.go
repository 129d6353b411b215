// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Health takes the state of a stream. Calls come one at a time, only when
// something has changed, and must not block.
type Health interface {
	OK(message string)
	Degraded(message string, err error)
}

// conditions are the things that are wrong with a stream at the moment, each
// under its name. Health hears of them as one; the log hears when one comes or
// goes.
type conditions struct {
	log    *slog.Logger
	health Health // nil: nobody wants to know

	changed atomic.Bool

	mu    sync.Mutex
	good  string // what to say when nothing is wrong; "" says nothing
	wrong map[string]error
	said  []remark // to be logged

	reporting sync.Mutex // around all that follows and the calls of log and health
	logged    map[string]error
	reported  string
}

func newConditions(log *slog.Logger, health Health) *conditions {
	return &conditions{log: log, health: health, wrong: map[string]error{}, logged: map[string]error{}}
}

// later notes what is wrong under this name, nil for nothing any more. The
// caller may hold locks, and calls flush when it holds none.
func (c *conditions) later(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.wrong, name)
	} else {
		c.wrong[name] = err
	}
	c.changed.Store(true)
}

// remark is something for the log that does not degrade the stream.
type remark struct {
	text string
	args []any
}

// remark notes something for the log. The caller may hold locks, as with later.
func (c *conditions) remark(text string, args ...any) {
	c.mu.Lock()
	c.said = append(c.said, remark{text, args})
	c.mu.Unlock()
	c.changed.Store(true)
}

// set is later and flush.
func (c *conditions) set(name string, err error) {
	c.later(name, err)
	c.flush()
}

// fine sets what to say when nothing is wrong.
func (c *conditions) fine(message string) {
	c.mu.Lock()
	c.good = message
	c.mu.Unlock()
	c.changed.Store(true)
}

// rest forgets what was wrong with a stream that has stopped.
func (c *conditions) rest() {
	c.reporting.Lock()
	c.logged = map[string]error{} // it has not recovered: nobody asks any more
	c.reporting.Unlock()
	c.mu.Lock()
	clear(c.wrong)
	c.mu.Unlock()
	c.fine("not in use")
	c.flush()
}

// flush reports what has changed.
func (c *conditions) flush() {
	if !c.changed.Load() {
		return
	}
	c.reporting.Lock()
	defer c.reporting.Unlock()
	c.changed.Store(false)
	c.mu.Lock()
	good, wrong, said := c.good, maps.Clone(c.wrong), c.said
	c.said = nil
	c.mu.Unlock()
	for _, r := range said {
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
		c.report(message+"\n"+err.Error(), func() { c.health.Degraded(message, err) })
	case good != "":
		c.report(good, func() { c.health.OK(good) })
	}
}

func (c *conditions) logChanges(wrong map[string]error) {
	for name, err := range wrong {
		if _, known := c.logged[name]; !known {
			c.log.Log(context.Background(), gravity(name, err), "Stream is degraded", "condition", name, "error", err)
		}
	}
	for name, err := range c.logged {
		if _, still := wrong[name]; !still {
			c.log.Log(context.Background(), min(slog.LevelInfo, gravity(name, err)), "Stream has recovered", "condition", name)
		}
	}
	c.logged = wrong
}

// gravity is the level that a condition is logged at. A fresh cluster has no
// definitions yet, and an API server that asks for patience gets it.
func gravity(name string, err error) slog.Level {
	switch {
	case name == conditionResource:
		return slog.LevelInfo
	case apierrors.IsTooManyRequests(err):
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

func (c *conditions) report(text string, call func()) {
	if c.reported != text {
		c.reported = text
		call()
	}
}

// list returns what is wrong, for State.
func (c *conditions) list() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]string, len(c.wrong))
	for name, err := range c.wrong {
		out[name] = err.Error()
	}
	return out
}

// why returns what is wrong as a remark in an error, "" if nothing is.
func (c *conditions) why() string {
	var texts []string
	for name, text := range c.list() {
		texts = append(texts, name+": "+text)
	}
	if texts == nil {
		return ""
	}
	slices.Sort(texts)
	return " (" + strings.Join(texts, "; ") + ")"
}
