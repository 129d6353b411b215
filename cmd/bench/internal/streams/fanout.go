// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
	"github.com/skep-operator/skep/cmd/bench/internal/usage"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

const (
	fanOutKeys  = 10_000
	fanOutTurns = 40
	// A subscriber's goroutine that blocks may cost an allocation of the runtime's;
	// the budget is none per delivery.
	fanOutNone = .001
)

var fanOutSubscribers = []int{1, 4, 16}

func deliveries(subscribers int) string {
	return fmt.Sprintf("%d subscribers, deliveries", subscribers)
}
func deliveryCPU(subscribers int) string {
	return fmt.Sprintf("%d subscribers, CPU per delivery", subscribers)
}
func deliveryAllocs(subscribers int) string {
	return fmt.Sprintf("%d subscribers, allocations per delivery", subscribers)
}

// FanOut is the contest of one source of changes and many who hear of them.
func FanOut() contest.Contest {
	c := contest.Contest{
		Name:  "fanout",
		Title: fmt.Sprintf("Fan-out of updates of %d keys", fanOutKeys),
		Note: "Behind client-go's Reflector, which reads objects from memory: no decoding. Each of \"ours\" ends with Done. " +
			"After each update of all keys all wait for the slowest, so that nothing is merged and no queue grows.",
		Contestants: []contest.Contestant{
			{Name: "informer", Run: fanOut(toHandlers)},
			{Name: "ours", Judged: true, Run: fanOut(toChanges)},
		},
	}
	for _, n := range fanOutSubscribers {
		speed, allocs := contest.Measure{Name: deliveries(n), Unit: "/s"}, contest.Measure{Name: deliveryAllocs(n)}
		cpu := contest.Measure{Name: deliveryCPU(n), Unit: "µs"}
		if n == 4 {
			speed.Budget.AtLeast, allocs.Budget.AtMost = 1.5e6, fanOutNone
		}
		c.Measures = append(c.Measures, speed, cpu, allocs)
	}
	return c
}

// turn is what subscribers tell of: one is over when it has come to all of them.
type turn chan struct{}

// counter returns what a subscriber calls for each delivery. Nothing is merged,
// so a turn of all keys is so many deliveries.
func (t turn) counter(ctx context.Context) func() {
	n := 0
	return func() {
		if n++; n%fanOutKeys != 0 {
			return
		}
		select {
		case t <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

func (t turn) wait(ctx context.Context, subscribers int) error {
	for range subscribers {
		select {
		case <-t:
		case <-ctx.Done():
			return fmt.Errorf("not all updates were delivered: %w", context.Cause(ctx))
		}
	}
	return nil
}

// group is the subscribers of one source, who run until the context ends.
type group struct {
	sync.WaitGroup
	source *source
	size   int
	turn   turn
}

// subscribe starts a group behind a Reflector that reads from its source.
type subscribe func(context.Context, *group) error

func fanOut(subscribe subscribe) runner {
	return func(ctx context.Context, _ string) (contest.Figures, error) {
		figures := contest.Figures{}
		for _, n := range fanOutSubscribers {
			total, err := fanOutTo(ctx, n, subscribe)
			if err != nil {
				return nil, fmt.Errorf("%d subscribers: %w", n, err)
			}
			count := float64(fanOutTurns * fanOutKeys * n)
			figures[deliveries(n)], figures[deliveryCPU(n)] = count/total.Wall, total.CPU/count*1e6
			figures[deliveryAllocs(n)] = total.Allocations / count
		}
		return figures, nil
	}
}

func fanOutTo(ctx context.Context, subscribers int, subscribe subscribe) (total usage.Since, err error) {
	ctx, cancel := context.WithCancel(ctx)
	g := &group{source: newSource(), size: subscribers, turn: make(turn)}
	defer g.Wait()
	defer cancel()
	if err := subscribe(ctx, g); err != nil {
		return total, err
	}
	if err := g.turn.wait(ctx, subscribers); err != nil { // the initial state
		return total, err
	}
	var begin usage.Count
	const warmUp = 4
	for n := range warmUp + fanOutTurns {
		if n == warmUp {
			usage.Heap()
			if begin, err = usage.Now(); err != nil {
				return total, err
			}
		}
		g.source.update(ctx, n)
		if err := g.turn.wait(ctx, subscribers); err != nil {
			return total, err
		}
	}
	return begin.Since()
}

func toHandlers(ctx context.Context, g *group) error {
	informer := cache.NewSharedIndexInformerWithOptions(g.source, &carrier{}, cache.SharedIndexInformerOptions{})
	for range g.size {
		count := g.turn.counter(ctx)
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { count() }, UpdateFunc: func(any, any) { count() },
		}); err != nil {
			return err
		}
	}
	g.Go(func() { informer.RunWithContext(ctx) })
	return nil
}

func toChanges(ctx context.Context, g *group) error {
	return toStream(ctx, g, func(l *stream.Local[slim.Pod], count func()) {
		for batch := range l.Changes(ctx) {
			for range batch.Changes {
				count()
			}
		}
	})
}

func toStream(ctx context.Context, g *group, receive func(l *stream.Local[slim.Pod], count func())) error {
	l, err := stream.NewLocal[slim.Pod]()
	if err != nil {
		return err
	}
	for range g.size {
		g.Go(func() { receive(l, g.turn.counter(ctx)) })
	}
	g.Go(func() {
		reflector := cache.NewReflectorWithOptions(g.source, nil, reflected{l}, cache.ReflectorOptions{})
		_ = reflector.ListAndWatchWithContext(ctx) // ends with the context
	})
	return nil
}

// reflected is the change list as the store of a Reflector, as it is in a
// Stream.
type reflected struct{ *stream.Local[slim.Pod] }

var _ cache.ReflectorStore = reflected{}

func (r reflected) Add(obj any) error {
	r.Upsert(&obj.(*carrier).slim)
	return nil
}

func (r reflected) Update(obj any) error { return r.Add(obj) }

func (r reflected) Delete(any) error { return errors.New("nothing is deleted here") }

func (r reflected) Replace(objs []any, _ string) error {
	pods := make([]*slim.Pod, len(objs))
	for i, obj := range objs {
		pods[i] = &obj.(*carrier).slim
	}
	r.Local.Replace(pods...)
	return nil
}

func (r reflected) Resync() error { return nil }

// carrier is an object that a Reflector takes, with a slim one for ours.
type carrier struct {
	metav1.PartialObjectMetadata
	slim slim.Pod
}
