// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"log/slog"
	"time"
)

// Option sets up a stream.
type Option func(*options)

type options struct {
	name   string
	linger time.Duration
	log    *slog.Logger
	health Health
	timing timing
}

// timing bounds what a stream waits for. Tests shorten it.
type timing struct {
	answer    time.Duration // for the headers of an answer
	silence   time.Duration // between two reads of a list or of initial events
	idle      time.Duration // between two reads of a watch; bookmarks come every minute
	lifetime  time.Duration // of a watch beyond the time the server was asked for
	retry     time.Duration // first of the delays between two attempts
	retryMax  time.Duration // last of them
	cutMax    time.Duration // the same after connections that end early, and were good until then
	forbidden time.Duration // first of the delays after 403s in a row
	absent    time.Duration // the same after 404s, where definitions cannot be watched
	refusals  time.Duration // last of both
	settled   time.Duration // a connection that lived so long resets the delays
}

var defaultTiming = timing{
	answer:    70 * time.Second,
	silence:   10 * time.Second,
	idle:      3 * time.Minute,
	lifetime:  30 * time.Second,
	retry:     100 * time.Millisecond,
	retryMax:  30 * time.Second,
	cutMax:    3 * time.Second,
	forbidden: 2 * time.Second,
	absent:    10 * time.Second,
	refusals:  30 * time.Second,
	settled:   30 * time.Second,
}

// DefaultLinger is how long a stream goes on after its last user has left.
const DefaultLinger = 30 * time.Second

func makeOptions(name string, opts []Option) options {
	o := options{name: name, linger: DefaultLinger, log: slog.New(slog.DiscardHandler), timing: defaultTiming}
	for _, opt := range opts {
		opt(&o)
	}
	o.log = o.log.With("stream", o.name)
	return o
}

// WithName names the stream in logs and State; the default is the resource.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithLinger sets how long the stream goes on after its last user has left, so
// that a user that comes back does not cost a list.
func WithLinger(d time.Duration) Option { return func(o *options) { o.linger = d } }

// WithLogger sets the logger; the default logs nothing.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithHealth sets who hears of the stream's health.
func WithHealth(h Health) Option { return func(o *options) { o.health = h } }

// SubscribeOption sets up a subscription.
type SubscribeOption func(*subscribeOptions)

type subscribeOptions struct {
	name         string
	retry        RetryPolicy
	changesFirst bool
	overdueAfter time.Duration
}

// DefaultOverdue is how long a key may be in flight before the stream's health
// says so.
const DefaultOverdue = 5 * time.Minute

func makeSubscribeOptions(opts []SubscribeOption) subscribeOptions {
	o := subscribeOptions{name: "unnamed", overdueAfter: DefaultOverdue}
	for _, opt := range opts {
		opt(&o)
	}
	if o.retry == nil {
		o.retry = defaultRetry()
	}
	return o
}

// Named names the subscriber in health and State.
func Named(name string) SubscribeOption { return func(o *subscribeOptions) { o.name = name } }

// WithRetry sets what becomes of keys that are Done with an error. The default
// is Backoff from DefaultBackoffBase to DefaultBackoffMax, Limited to
// DefaultRetriesRate and DefaultRetriesBurst.
func WithRetry(p RetryPolicy) SubscribeOption { return func(o *subscribeOptions) { o.retry = p } }

// ChangesFirst delivers changes before what is left of the initial state, so
// that a restart does not delay them. Sync still comes after all of the initial
// state.
func ChangesFirst() SubscribeOption { return func(o *subscribeOptions) { o.changesFirst = true } }

// OverdueAfter sets how long a key may be in flight before the stream's health
// says so; 0 is for ever.
func OverdueAfter(d time.Duration) SubscribeOption {
	return func(o *subscribeOptions) { o.overdueAfter = d }
}
