// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/metrics"
)

// term is the handle of a term; it implements lifecycle.Term.
type term struct {
	hive    *Hive
	info    *resolve.Term
	busy    ctxMutex // while it is being entered or left
	current *scope   // nil outside the term
	entered bool     // at least once
}

func (h *Hive) newTerm(t *resolve.Term) *term {
	return &term{hive: h, info: t, busy: newCtxMutex()}
}

// Enter implements lifecycle.Term.
func (t *term) Enter(ctx context.Context) error {
	if err := t.busy.LockContext(ctx); err != nil {
		return fmt.Errorf("term %s is still being entered or left: %w", t.info.Name, err)
	}
	defer t.busy.Unlock()
	switch {
	case t.current != nil:
		return fmt.Errorf("term %s is entered already; leave it first", t.info.Name)
	case !t.hive.built.done: // asked by a constructor, which must not
		return fmt.Errorf("term %s cannot be entered before the process is built", t.info.Name)
	}
	s := t.hive.newScope(t.hive.orderOf(t.info), t.hive.process.values)
	if err := t.hive.timed(Event{Kind: EventTermEntered, Term: t.info.Name}, func() error { return s.start(ctx) }); err != nil {
		return fmt.Errorf("entering term %s: %w", t.info.Name, err)
	}
	t.current = s
	if !t.entered {
		t.entered = true
		t.hive.writeProfile()
	}
	return nil
}

// Leave implements lifecycle.Term.
func (t *term) Leave(ctx context.Context) error { return t.leave(ctx, "") }

// leave leaves the term on behalf of a module that failed, if one is named.
func (t *term) leave(ctx context.Context, failed string) error {
	if err := t.busy.LockContext(ctx); err != nil {
		return fmt.Errorf("term %s is still being entered or left: %w", t.info.Name, err)
	}
	defer t.busy.Unlock()
	if t.current == nil {
		return nil
	}
	s := t.current
	t.current = nil
	defer t.hive.resetGauges(t.info)
	if err := t.hive.timed(Event{Kind: EventTermLeft, Term: t.info.Name, Module: failed}, func() error { return s.stop(ctx) }); err != nil {
		return fmt.Errorf("leaving term %s: %w", t.info.Name, err)
	}
	return nil
}

// resetGauges resets the gauges of a term's modules, which a replica that does not lead cannot update.
func (h *Hive) resetGauges(t *resolve.Term) {
	for _, n := range h.graph.Nodes {
		if n.Metrics && n.Module.Term == t && h.process.values.Has(n) {
			collectors, _ := metrics.Collectors(h.process.values.Get(resolve.Source{Node: n}).Interface())
			metrics.ResetGauges(collectors)
		}
	}
}

func (h *Hive) orderOf(t *resolve.Term) *resolve.Order {
	return h.orders[slices.IndexFunc(h.orders, func(o *resolve.Order) bool { return o.Term == t })]
}

// TryTerms builds every term once and drops the values, to find constructors
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
		errs = append(errs, inDeclarationOrder(s.build(nil))...)
		s.teardown()
		s.mu.Unlock()
	}
	return joinErrors(errs...)
}

// leaveTerms leaves all terms after the process has stopped.
func (h *Hive) leaveTerms(ctx context.Context) error {
	var errs []error
	for _, t := range h.graph.Terms {
		errs = append(errs, h.terms[t.Name].Leave(ctx))
	}
	return errors.Join(errs...)
}
