// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import "context"

// Cause says why a write is made. The mechanisms that decide on writes set it;
// duties do not.
type Cause struct {
	// Rule is what demanded the write, as module and rule: "ipam.clusterpool
	// allocate".
	Rule string
	// Triggers are the objects that set the rule off, the newest last.
	Triggers []Trigger
	// Parent is the cause that led to this one, if any.
	Parent *Cause
}

// Trigger is an object in the state in which it set off a rule.
type Trigger struct {
	Kind            string // CiliumNode
	Namespace, Name string
	ResourceVersion string
}

func (t Trigger) String() string {
	name := t.Name
	if t.Namespace != "" {
		name = t.Namespace + "/" + name
	}
	text := t.Kind + " " + name
	if t.ResourceVersion != "" {
		text += " at " + t.ResourceVersion
	}
	return text
}

func (c *Cause) String() string {
	text := c.Rule
	for i, t := range c.Triggers {
		if i == 0 {
			text += ", set off by "
		} else {
			text += ", "
		}
		text += t.String()
	}
	if c.Parent != nil {
		text += ", because of " + c.Parent.String()
	}
	return text
}

type causeKey struct{}

// WithCause marks all writes made with the context.
func WithCause(ctx context.Context, c *Cause) context.Context {
	return context.WithValue(ctx, causeKey{}, c)
}

// CauseOf is the cause of writes made with the context, or nil.
func CauseOf(ctx context.Context) *Cause {
	c, _ := ctx.Value(causeKey{}).(*Cause)
	return c
}
