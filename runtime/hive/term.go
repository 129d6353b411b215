// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"context"
	"fmt"
	"slices"

	"github.com/skep-operator/skep/runtime/internal/plan"
)

// term is the handle of a term; it implements lifecycle.Term.
type term struct {
	hive    *Hive
	plan    *plan.Term
	current *scope // nil outside the term
}

// Enter implements lifecycle.Term.
func (t *term) Enter(ctx context.Context) error {
	if t.current != nil {
		return fmt.Errorf("term %s is entered already; leave it first", t.plan.Name)
	}
	h := t.hive
	i := slices.IndexFunc(h.orders, func(o *plan.Order) bool { return o.Term == t.plan })
	s := h.newScope(h.orders[i], h.process.values)
	done := h.profile.time("build", t.plan.Name)
	s.build()
	done()
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("entering term %s: %w", t.plan.Name, err)
	}
	t.current = s
	return nil
}

// Leave implements lifecycle.Term.
func (t *term) Leave(ctx context.Context) error {
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
