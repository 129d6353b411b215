// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/skep-operator/skep/resources/stream/internal/changelog"
	"github.com/skep-operator/skep/runtime/job"
)

// Health takes the state of a stream. Calls come one at a time, only when
// something has changed, and must not block.
type Health interface {
	OK(message string)
	Degraded(message string, err error)
}

// Option sets up a stream.
type Option func(*options)

type options struct {
	name     string
	linger   time.Duration
	onDemand bool
	log      *slog.Logger
	health   Health
}

// DefaultLinger is how long a stream goes on after its last user has left.
const DefaultLinger = 30 * time.Second

func makeOptions(name string, opts []Option) options {
	o := options{name: name, linger: DefaultLinger, log: slog.New(slog.DiscardHandler)}
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

// OnDemand has a replica that does not lead not run the stream, also with
// --standby=warm: for objects that a duty needs only in some clusters.
func OnDemand() Option { return func(o *options) { o.onDemand = true } }

// WithLogger sets the logger; the default logs nothing.
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithHealth sets the health of the stream; by default it has none.
func WithHealth(h Health) Option { return func(o *options) { o.health = h } }

// ChangesOption sets up a loop over Changes.
type ChangesOption func(*changelog.Options)

// DefaultBatchSize is the most changes of a batch without BatchSize.
const DefaultBatchSize = 256

func makeChangesOptions(ctx context.Context, opts []ChangesOption) changelog.Options {
	o := changelog.Options{Name: cmp.Or(job.Module(ctx), "unnamed"), BatchSize: DefaultBatchSize}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// WithSubscriberName names the subscriber in State. Without it a subscriber that
// is part of a job has the name of the job's module.
func WithSubscriberName(name string) ChangesOption {
	return func(o *changelog.Options) { o.Name = name }
}

// NewestFirst delivers changes before what is left of the initial state, so that
// a restart does not delay them. The sync mark still comes after all of the
// initial state.
func NewestFirst() ChangesOption { return func(o *changelog.Options) { o.NewestFirst = true } }

// BatchSize sets the most changes of a batch.
func BatchSize(n int) ChangesOption { return func(o *changelog.Options) { o.BatchSize = max(1, n) } }

// ReportGaps yields a batch with GapUntil where objects may have come and gone without
// a change: they were deleted before the subscriber got them, or while the stream
// listed anew. A subscriber that has written objects looks for those that it got no
// change of.
func ReportGaps() ChangesOption { return func(o *changelog.Options) { o.Gaps = true } }
