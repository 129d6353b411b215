// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"errors"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// deleteHalves deletes a batch. One that panics is halved, until the candidate is found
// that has to wait.
func (s *Sweep[K, T]) deleteHalves(ctx context.Context, batch []Candidate[K, T]) (outcomes []Outcome, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	do := func() (err error) { outcomes, err = s.deleteBatch(ctx, batch); return err }
	if len(batch) == 1 {
		if err := s.isolate(named[T]{batch[0].Object, s.spec.Trigger}, do); !isPanic(err) {
			return outcomes, err
		}
		s.recordOutcome(batch[0], Failed)
		return []Outcome{Failed}, nil
	}
	if err := s.tryBatch(batch[0], do); !isPanic(err) {
		return outcomes, err
	}
	first, err := s.deleteHalves(ctx, batch[:len(batch)/2])
	second, err2 := s.deleteHalves(ctx, batch[len(batch)/2:])
	return append(first, second...), errors.Join(err, err2)
}

func (s *Sweep[K, T]) tryBatch(first Candidate[K, T], do func() error) error {
	defer s.attempts.Begin(named[T]{first.Object, s.spec.Trigger})()
	return lifecycle.Recover(do)
}

// isolate runs do for an object. A panic of it is kept for the report of the sweep.
func (s *Sweep[K, T]) isolate(obj named[T], do func() error) error {
	defer s.attempts.Begin(obj)()
	err := s.panics.Run(obj, do)
	panics.Rebuild(err)
	if isPanic(err) {
		s.deps.book.RecordDecision(&k8s.Cause{Rule: s.rule, Triggers: []k8s.Trigger{obj.trigger(obj.object)}}, obj.String(), err)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.panicked[obj.String()] = err
	}
	return err
}

// named is an object whose name is made when it is read: most are never named.
type named[T any] struct {
	object  T
	trigger func(T) k8s.Trigger
}

// String implements fmt.Stringer.
func (n named[T]) String() string {
	t := n.trigger(n.object)
	t.ResourceVersion = ""
	return t.String()
}

func isPanic(err error) bool { return errors.As(err, new(*lifecycle.PanicError)) }
