// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"

	"github.com/skep-operator/skep/resources/explain"
)

// Cause says why a write is made, see [explain.Cause].
type Cause = explain.Cause

// Trigger is an object in the state in which it set off a rule.
type Trigger = explain.Trigger

// WithCause marks all writes made with the context.
func WithCause(ctx context.Context, c *Cause) context.Context { return explain.WithCause(ctx, c) }

// CauseOf is the cause of writes made with the context, or nil.
func CauseOf(ctx context.Context) *Cause { return explain.CauseOf(ctx) }
