// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skep-operator/skep/runtime/internal/plan"
)

// term is the handle of a term; it implements lifecycle.Term.
type term struct {
	hive    *Hive
	plan    *plan.Term
	busy    gate   // while it is being entered or left
	current *scope // nil outside the term
	entered bool   // at least once
}

func (h *Hive) newTerm(t *plan.Term) *term {
	return &term{hive: h, plan: t, busy: newGate()}
}

// Enter implements lifecycle.Term.
func (t *term) Enter(ctx context.Context) error {
	if err := t.busy.enter(ctx); err != nil {
		return fmt.Errorf("term %s is still being entered or left: %w", t.plan.Name, err)
	}
	defer t.busy.Unlock()
	switch {
	case t.current != nil:
		return fmt.Errorf("term %s is entered already; leave it first", t.plan.Name)
	case !t.hive.built.done: // asked by a constructor, which must not
		return fmt.Errorf("term %s cannot be entered before the process is built", t.plan.Name)
	}
	s := t.hive.newScope(t.hive.orderOf(t.plan), t.hive.process.values)
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("entering term %s: %w", t.plan.Name, err)
	}
	t.current = s
	if !t.entered {
		t.entered = true
		t.hive.writeProfile()
	}
	return nil
}

// Leave implements lifecycle.Term.
func (t *term) Leave(ctx context.Context) error {
	if err := t.busy.enter(ctx); err != nil {
		return fmt.Errorf("term %s is still being entered or left: %w", t.plan.Name, err)
	}
	defer t.busy.Unlock()
	if t.current == nil {
		return nil
	}
	s := t.current
	t.current = nil
	if err := s.stop(ctx); err != nil {
		return fmt.Errorf("leaving term %s: %w", t.plan.Name, err)
	}
	return nil
}

func (h *Hive) orderOf(t *plan.Term) *plan.Order {
	return h.orders[slices.IndexFunc(h.orders, func(o *plan.Order) bool { return o.Term == t })]
}

// TryTerms builds every term once and throws it away, to find constructors
// that fail. Nothing is started. It fails with the outcome of Build, if that
// failed.
func (h *Hive) TryTerms() error {
	if err := h.Build(); err != nil {
		return err
	}
	var errs []error
	for _, order := range h.orders[1:] {
		s := h.newScope(order, h.process.values)
		s.mu.Lock()
		errs = append(errs, inOrder(s.build(nil))...)
		s.vacate()
		s.mu.Unlock()
	}
	return paragraphs(errs...)
}

// leaveTerms leaves what is still entered when the process has stopped.
func (h *Hive) leaveTerms(ctx context.Context) error {
	var errs []error
	for _, t := range h.plan.Terms {
		errs = append(errs, h.terms[t.Name].Leave(ctx))
	}
	return errors.Join(errs...)
}
