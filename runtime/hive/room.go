// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"time"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/internal/plan"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/metrics"
)

// room is what a module has to itself in a scope. It is given up when the term
// ends or the module is rebuilt, and what was reported and registered through
// it with it.
type room struct {
	jobs        *job.Runner
	health      health.Reporter
	closeHealth func()
	metrics     *metrics.Module // of constructors; lasting metrics are kept apart
}

// room is that of a module. With mu held.
func (s *scope) room(m *plan.Module) *room {
	if r := s.rooms[m]; r != nil {
		return r
	}
	id := m.Label()
	r := &room{metrics: s.hive.metrics.Module(id)}
	r.health, r.closeHealth = s.hive.health.Open(id)
	r.jobs = job.NewGroup(id, s.hive.log.Logger(id), r.health, job.Hooks{
		Ran: func(name string, took time.Duration, err error) { s.hive.jobs.ran(id, name, took, err) },
		Panicked: func(_ string, value any, stack []byte) {
			s.super.tell(failure{m, &lifecycle.PanicError{Value: value, Stack: stack}, r})
		},
		Shutdown: s.hive.requestShutdown,
	})
	s.rooms[m] = r
	return r
}

func (s *scope) closeRoom(m *plan.Module) {
	if r := s.rooms[m]; r != nil {
		r.closeHealth()
		r.metrics.Drop()
		delete(s.rooms, m)
	}
}

// hook is what a step starts.
func (s *scope) hook(step *plan.Step) lifecycle.Hook {
	if step.Node == nil {
		return s.room(step.Module).jobs
	}
	value := s.values.Get(plan.Source{Node: step.Node}).Interface()
	if j, ok := value.(job.Job); ok && step.Node.Kind == plan.Job {
		return s.room(step.Module).jobs.Hook(step.Node.Name, j)
	}
	if h, ok := value.(lifecycle.Hook); ok {
		return h
	}
	return noHook{} // the constructor returned nil
}

type noHook struct{}

func (noHook) Start(context.Context) error { return nil }
func (noHook) Stop(context.Context) error  { return nil }
