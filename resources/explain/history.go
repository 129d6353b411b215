// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/printable"
)

// Write is a mutating request that left the operator, or tried to.
type Write struct {
	Seq    uint64        `json:"seq"` // numbers the writes of a process, from 1
	At     time.Time     `json:"at"`  // when its answer came
	Took   time.Duration `json:"took"`
	Module string        `json:"module"`
	Verb   string        `json:"verb"` // create, update, patch, delete; put, delete, txn for a kvstore
	// Resource is as in ciliumnodes.cilium.io, or the prefix of a kvstore's keys.
	Resource    string `json:"resource"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	Subresource string `json:"subresource,omitempty"`
	// Revision is the resourceVersion or mod revision after the write.
	Revision string `json:"revision,omitempty"`
	// Result is "ok", or why not.
	Result string `json:"result"`
	Cause  *Cause `json:"cause,omitempty"`
}

// Decision is what a rule last decided about a key.
type Decision struct {
	At   time.Time `json:"at"`
	Rule string    `json:"rule"`
	Key  string    `json:"key"`
	// Outcome is what came of it: "wrote", "equal", or why nothing was written.
	Outcome  string    `json:"outcome"`
	Triggers []Trigger `json:"triggers,omitempty"`
}

// Event is the last Event of a module about an object with a reason.
type Event struct {
	At      time.Time `json:"at"` // when it was made last; the role may not allow to write it
	Module  string    `json:"module"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

// resultOK is the result of a write that was made.
const resultOK = "ok"

// How much is remembered. A write takes some 400 bytes, a decision 300, an Event 400 and up to 4,000.
const (
	keptWrites    = 4096
	keptDecisions = 8192
	keptEvents    = 1024

	// maxOutcome is how much of an outcome or a result is kept, in bytes.
	maxOutcome = 1000
)

// History remembers writes and decisions. The zero value is not usable; a nil History
// remembers nothing. Its methods are safe for concurrent use.
type History struct {
	mu        sync.Mutex
	seq       uint64
	writes    []Write // a ring: the write with number n is at n % keptWrites
	decisions *recent[decided, decision]
	events    *recent[subject, event]
	news      chan struct{} // closed and replaced when there is another write
}

// decided is what a decision is about.
type decided struct {
	rule string
	key  any
}

// Brief is a key of which less is remembered than it is: Brief returns a comparable value that is small.
type Brief interface{ Brief() any }

// decision is a Decision as it is kept, beside what it is about.
type decision struct {
	at       int64 // Unix, in nanoseconds
	outcome  string
	triggers []Trigger
}

// text is that of the key, which can be long.
func (d decided) text() string {
	if text, is := d.key.(string); is {
		return text
	}
	return fmt.Sprint(d.key)
}

// NewHistory returns an empty book.
func NewHistory() *History {
	return &History{
		decisions: newRecent[decided, decision](keptDecisions), events: newRecent[subject, event](keptEvents), news: make(chan struct{}),
	}
}

// subject is what an Event is about.
type subject struct{ module, kind, namespace, name, reason string }

// event is an Event as it is kept.
type event struct {
	at      time.Time
	message string
}

// RecordEvent notes an Event about an object: of each module and reason the last one.
func (b *History) RecordEvent(module, kind, namespace, name, reason, message string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events.set(subject{module, kind, namespace, name, reason}, event{time.Now(), message})
}

// RecordWrite notes a write; its number and time are set here. The cause may be nil.
func (b *History) RecordWrite(w Write) {
	if b == nil {
		return
	}
	if w.Result == resultOK {
		w.Cause.wrote()
	}
	w.Result = printable.Cut(w.Result, maxOutcome)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	w.Seq, w.At = b.seq, time.Now()
	if len(b.writes) < keptWrites {
		b.writes = append(b.writes, w)
	} else {
		b.writes[(b.seq-1)%keptWrites] = w
	}
	close(b.news)
	b.news = make(chan struct{})
}

// Outcomes of decisions that need no words of their own.
const (
	wrote = "wrote"
	equal = "equal"
)

// RecordDecision records the outcome of the decision with this cause: err, "wrote",
// the reason that the duty set, or "equal". The key is a comparable value, of which
// the text is made when it is read.
func (b *History) RecordDecision(c *Cause, key any, err error) {
	if b == nil {
		return
	}
	if b, is := key.(Brief); is {
		key = b.Brief()
	}
	of, d := decided{c.Rule, key}, decision{at: time.Now().UnixNano(), triggers: c.Triggers}
	writes, reason := c.result()
	switch {
	case err != nil:
		d.outcome = printable.Cut(err.Error(), maxOutcome)
	case writes > 0:
		d.outcome = wrote
	case reason != "":
		d.outcome = printable.Cut(reason, maxOutcome)
	default:
		d.outcome = equal
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, known := b.decisions.get(of); known && d.outcome == equal && len(d.triggers) == 0 && (last.outcome == wrote || last.outcome == equal) {
		return // nothing triggered it, nothing changed: the last decision stays
	}
	b.decisions.set(of, d)
}

// Explanation is what is remembered of an object, the oldest first.
type Explanation struct {
	Writes    []Write    `json:"writes"`
	Decisions []Decision `json:"decisions"`
	// Events are those about the object, of each module and reason the last one.
	Events []Event `json:"events,omitempty"`
	// Namespaces are those in which an object of the kind and name is known, where
	// nothing is remembered of the one that was asked about.
	Namespaces []string `json:"namespaces,omitempty"`
}

// For tells what is remembered of an object: writes to it, writes and
// decisions that it set off, and decisions about its name. kind is a kind or a
// resource in any spelling that people use: CiliumNode, ciliumnodes,
// ciliumnodes.cilium.io.
func (b *History) For(kind, namespace, name string) Explanation {
	b.mu.Lock()
	defer b.mu.Unlock()
	var x Explanation
	for w := range b.since(0) {
		written := w.Name == name && w.Namespace == namespace && sameKind(w.Resource, kind)
		if written || w.Cause != nil && triggered(w.Cause.Triggers, kind, namespace, name) {
			x.Writes = append(x.Writes, w)
		}
	}
	for of, d := range b.decisions.all() {
		if text := of.text(); triggered(d.triggers, kind, namespace, name) || isAbout(text, kind, namespace, name) {
			x.Decisions = append(x.Decisions, Decision{At: time.Unix(0, d.at), Rule: of.rule, Key: text, Outcome: d.outcome, Triggers: d.triggers})
		}
	}
	slices.SortStableFunc(x.Decisions, func(a, b Decision) int { return a.At.Compare(b.At) })
	for of, e := range b.events.all() {
		if of.namespace == namespace && of.name == name && sameKind(of.kind, kind) {
			x.Events = append(x.Events, Event{e.at, of.module, of.reason, e.message})
		}
	}
	if len(x.Writes)+len(x.Decisions)+len(x.Events) == 0 {
		x.Namespaces = b.namespacesOf(kind, name)
	}
	return x
}

// isAbout reports whether the text of a key is that of an object: its name, or its kind and its name.
func isAbout(text, kind, namespace, name string) bool {
	if text == joined(namespace, name) {
		return true
	}
	of, ok := strings.CutSuffix(text, "/"+name)
	of = strings.TrimPrefix(of, namespace+"/")
	return ok && of != namespace && !strings.Contains(of, "/") && sameKind(of, kind)
}

// namespacesOf are the namespaces in which an object is known. With the lock
// held.
func (b *History) namespacesOf(kind, name string) []string {
	known := map[string]bool{}
	note := func(triggers []Trigger) {
		for _, t := range triggers {
			if t.Name == name && t.Namespace != "" && sameKind(t.Kind, kind) {
				known[t.Namespace] = true
			}
		}
	}
	for w := range b.since(0) {
		note([]Trigger{{Kind: w.Resource, Namespace: w.Namespace, Name: w.Name}})
		if w.Cause != nil {
			note(w.Cause.Triggers)
		}
	}
	for _, d := range b.decisions.all() {
		note(d.triggers)
	}
	return slices.Sorted(maps.Keys(known))
}

func triggered(triggers []Trigger, kind, namespace, name string) bool {
	return slices.ContainsFunc(triggers, func(t Trigger) bool {
		return t.Name == name && t.Namespace == namespace && sameKind(t.Kind, kind)
	})
}

// sameKind compares kinds and resources as people write them: in any case, in
// singular or plural, with or without the group.
func sameKind(a, b string) bool { return plain(a) == plain(b) }

func plain(kind string) string {
	kind, _, _ = strings.Cut(strings.ToLower(kind), ".")
	if full := shortNames[kind]; full != "" {
		return full
	}
	switch {
	case strings.HasSuffix(kind, "ies"):
		return strings.TrimSuffix(kind, "ies") + "y"
	case strings.HasSuffix(kind, "sses"):
		return strings.TrimSuffix(kind, "es")
	case strings.HasSuffix(kind, "ss"):
		return kind
	}
	return strings.TrimSuffix(kind, "s")
}

// shortNames are the names that kubectl takes for kinds that operators are asked
// about.
var shortNames = map[string]string{
	"cm": "configmap", "ns": "namespace", "no": "node", "po": "pod", "svc": "service",
	"cep": "ciliumendpoint", "ciliumep": "ciliumendpoint", "ces": "ciliumendpointslice", "ciliumid": "ciliumidentity",
	"cn": "ciliumnode", "ciliumn": "ciliumnode", "cnp": "ciliumnetworkpolicy", "ccnp": "ciliumclusterwidenetworkpolicy",
	"ippool": "ciliumloadbalancerippool", "lbippool": "ciliumloadbalancerippool", "cpip": "ciliumpodippool",
}

// since yields writes with higher numbers, the oldest first. With the lock held.
func (b *History) since(seq uint64) func(func(Write) bool) {
	return func(yield func(Write) bool) {
		first := max(seq, b.seq-uint64(len(b.writes)))
		for n := first; n < b.seq; n++ {
			if !yield(b.writes[n%keptWrites]) {
				return
			}
		}
	}
}

// Writes returns those with numbers above seq, the oldest first.
func (b *History) Writes(seq uint64) []Write {
	writes, _ := b.snapshot(seq)
	return writes
}

func (b *History) snapshot(seq uint64) ([]Write, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(b.since(seq)), b.news
}

// Follow yields writes with numbers above seq, and waits for more until ctx
// ends. One that is slow misses what is forgotten meanwhile.
func (b *History) Follow(ctx context.Context, seq uint64) func(func(Write) bool) {
	return func(yield func(Write) bool) {
		for {
			writes, news := b.snapshot(seq)
			for _, w := range writes {
				if !yield(w) {
					return
				}
				seq = w.Seq
			}
			select {
			case <-news:
			case <-ctx.Done():
				return
			}
		}
	}
}
