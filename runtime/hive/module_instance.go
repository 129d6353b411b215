// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/metrics"
)

// moduleInstance is what a module has of its own in a scope: jobs, health and
// metrics. It is torn down when the term ends or the module is rebuilt, with all
// that was reported and registered through it.
type moduleInstance struct {
	jobs        *job.Runner
	health      health.Reporter
	closeHealth func()
	metrics     *metrics.Module // of constructors; metrics of the process are kept apart
}

// module is the instance of a module. With mu held.
func (s *scope) module(m *resolve.Module) *moduleInstance {
	if i := s.modules[m]; i != nil {
		return i
	}
	id := m.Label()
	i := &moduleInstance{metrics: s.hive.metrics.Module(id)}
	i.health, i.closeHealth = s.hive.health.Open(id)
	i.jobs = job.NewGroup(id, i.health, job.Hooks{
		Ran: func(r job.Run) { s.hive.own.recordRun(id, r) },
		Failed: func(name, action string, repeated bool, err error) {
			s.hive.emit(Event{Kind: EventJobFailed, Module: id, Name: name, Term: s.name(), Action: action, Repeated: repeated, Err: err})
		},
		Panicked: func(_ string, value any, stack []byte) {
			s.supervisor.enqueue(failure{m, lifecycle.AsPanic(value, stack), i})
		},
	})
	s.modules[m] = i
	return i
}

func (s *scope) teardownModule(m *resolve.Module) {
	if i := s.modules[m]; i != nil {
		i.closeHealth()
		i.metrics.Drop()
		delete(s.modules, m)
	}
}

// hook is what a step starts.
func (s *scope) hook(step *resolve.Step) lifecycle.Hook {
	if step.Node == nil {
		return s.module(step.Module).jobs
	}
	value := s.values.Get(resolve.Source{Node: step.Node}).Interface()
	if j, ok := value.(job.Job); ok && step.Node.Kind == resolve.Job {
		return s.module(step.Module).jobs.Hook(step.Node.Name, j)
	}
	if h, ok := value.(lifecycle.Hook); ok {
		return h
	}
	return noHook{} // the constructor returned nil
}

type noHook struct{}

func (noHook) Start(context.Context) error { return nil }
func (noHook) Stop(context.Context) error  { return nil }
