// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import (
	"context"
	"strings"
	"sync"
)

// Cause says why a write is made. The mechanisms that decide on writes set it;
// duties do not. It is used by one decision, and not changed once it is in a
// context.
type Cause struct {
	// Rule is what demanded the write, as module and rule: "ipam.clusterpool
	// allocate".
	Rule string `json:"rule"`
	// Triggers are the objects that triggered the rule, the newest last.
	Triggers []Trigger `json:"triggers,omitempty"`
	// Parent is the cause that led to this one, if any.
	Parent *Cause `json:"parent,omitempty"`

	mu     sync.Mutex
	writes int
	reason string
}

// Trigger is an object in the state in which it triggered a rule.
type Trigger struct {
	Kind            string `json:"kind"` // CiliumNode
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// String is like "CiliumNode a at 17".
func (t Trigger) String() string {
	text := t.Kind + " " + joined(t.Namespace, t.Name)
	if t.ResourceVersion != "" {
		text += " at " + t.ResourceVersion
	}
	return text
}

func joined(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// String is one line: the rule, what triggered it, and the causes before.
func (c *Cause) String() string {
	var b strings.Builder
	b.WriteString(c.Rule)
	for i, t := range c.Triggers {
		if i == 0 {
			b.WriteString(", set off by ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(t.String())
	}
	if c.Parent != nil {
		b.WriteString(", because of ")
		b.WriteString(c.Parent.String())
	}
	return b.String()
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

// SetReason sets why the decision that ctx belongs to does not write, or waits: the
// object has another owner, a rule skips it, something does not exist yet. The last
// reason of a decision stays.
func SetReason(ctx context.Context, text string) {
	if c := CauseOf(ctx); c != nil {
		c.mu.Lock()
		c.reason = text
		c.mu.Unlock()
	}
}

// wrote counts a write.
func (c *Cause) wrote() {
	if c != nil {
		c.mu.Lock()
		c.writes++
		c.mu.Unlock()
	}
}

// result is the number of writes so far, and the last reason.
func (c *Cause) result() (writes int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes, c.reason
}
