// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
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

// How much is remembered. A write takes some 400 bytes, a decision 300.
const (
	keptWrites    = 4096
	keptDecisions = 8192
)

// Book remembers writes and decisions. The zero value is not usable; a nil Book
// remembers nothing. Its methods are safe for concurrent use.
type Book struct {
	mu        sync.Mutex
	seq       uint64
	writes    []Write // a ring: the write with number n is at n % keptWrites
	decisions map[decided]*list.Element
	order     *list.List    // of decision, the oldest first
	news      chan struct{} // closed and replaced when there is another write
}

// decided is what a decision is about.
type decided struct {
	rule string
	key  any
}

// decision is a Decision as it is kept: the texts of keys can be long.
type decision struct {
	decided
	at       time.Time
	outcome  string
	triggers []Trigger
}

func (d decision) text() string {
	if text, is := d.key.(string); is {
		return text
	}
	return fmt.Sprint(d.key)
}

// NewBook returns an empty book.
func NewBook() *Book {
	return &Book{decisions: map[decided]*list.Element{}, order: list.New(), news: make(chan struct{})}
}

// Wrote notes a write; its number and time are set here. The cause may be nil.
func (b *Book) Wrote(w Write) {
	if b == nil {
		return
	}
	w.Cause.wrote()
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

// Decided notes what came of the decision with this cause: what was written is
// known; else the outcome is err, or the note that the duty left, or "equal". The
// key is a comparable value, of which the text is made when somebody asks.
func (b *Book) Decided(c *Cause, key any, err error) {
	if b == nil {
		return
	}
	d := decision{decided: decided{c.Rule, key}, at: time.Now(), triggers: c.Triggers}
	writes, note := c.result()
	switch {
	case err != nil:
		d.outcome = err.Error()
	case writes > 0:
		d.outcome = wrote
	case note != "":
		d.outcome = note
	default:
		d.outcome = equal
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.decisions[d.decided]; e != nil {
		if last := e.Value.(decision); d.outcome == equal && len(d.triggers) == 0 && (last.outcome == wrote || last.outcome == equal) {
			return // a look for its own sake: what was decided stands
		}
		e.Value = d
		b.order.MoveToBack(e)
		return
	}
	if len(b.decisions) == keptDecisions {
		oldest := b.order.Remove(b.order.Front()).(decision)
		delete(b.decisions, oldest.decided)
	}
	b.decisions[d.decided] = b.order.PushBack(d)
}

// Explanation is what is remembered of an object, the oldest first.
type Explanation struct {
	Writes    []Write    `json:"writes"`
	Decisions []Decision `json:"decisions"`
}

// About tells what is remembered of an object: writes to it, writes and
// decisions that it set off, and decisions about its name. kind is a kind or a
// resource in any spelling that people use: CiliumNode, ciliumnodes,
// ciliumnodes.cilium.io.
func (b *Book) About(kind, namespace, name string) Explanation {
	b.mu.Lock()
	defer b.mu.Unlock()
	var x Explanation
	for w := range b.since(0) {
		written := sameKind(w.Resource, kind) && w.Name == name && w.Namespace == namespace
		if written || w.Cause != nil && triggered(w.Cause.Triggers, kind, namespace, name) {
			x.Writes = append(x.Writes, w)
		}
	}
	for e := b.order.Front(); e != nil; e = e.Next() {
		d := e.Value.(decision)
		if text := d.text(); triggered(d.triggers, kind, namespace, name) || text == joined(namespace, name) {
			x.Decisions = append(x.Decisions, Decision{At: d.at, Rule: d.rule, Key: text, Outcome: d.outcome, Triggers: d.triggers})
		}
	}
	slices.SortStableFunc(x.Decisions, func(a, b Decision) int { return a.At.Compare(b.At) })
	return x
}

func triggered(triggers []Trigger, kind, namespace, name string) bool {
	return slices.ContainsFunc(triggers, func(t Trigger) bool {
		return sameKind(t.Kind, kind) && t.Namespace == namespace && t.Name == name
	})
}

// sameKind compares kinds and resources as people write them: in any case, in
// singular or plural, with or without the group.
func sameKind(a, b string) bool { return plain(a) == plain(b) }

func plain(kind string) string {
	kind, _, _ = strings.Cut(strings.ToLower(kind), ".")
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

// since yields writes with higher numbers, the oldest first. With the lock held.
func (b *Book) since(seq uint64) func(func(Write) bool) {
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
func (b *Book) Writes(seq uint64) []Write {
	writes, _ := b.look(seq)
	return writes
}

func (b *Book) look(seq uint64) ([]Write, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(b.since(seq)), b.news
}

// Follow yields writes with numbers above seq, and waits for more until ctx
// ends. One that is slow misses what is forgotten meanwhile.
func (b *Book) Follow(ctx context.Context, seq uint64) func(func(Write) bool) {
	return func(yield func(Write) bool) {
		for {
			writes, news := b.look(seq)
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
