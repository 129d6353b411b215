// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streams

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
	"github.com/skep-operator/skep/cmd/bench/internal/usage"
)

const (
	updatePods = 1_000
	updates    = 50_000

	updateCPU    = "CPU per update"
	updateWall   = "wall per update"
	updateAllocs = "allocations per update"
	updateBytes  = "bytes allocated per update"
	updateEvents = "events per update"
)

// Update is the contest of updates that come over a watch.
func Update() contest.Contest {
	return contest.Contest{
		Name:  "update",
		Title: fmt.Sprintf("%d updates of %d pods, from the wire to one subscriber", updates, updatePods),
		Note: "The watch is read, decoded, put into a store with an index by node, and delivered to one subscriber. " +
			"Ours may merge updates of a pod that its subscriber has not seen yet; events per update says whether it did.",
		Pods: updatePods,
		Measures: []contest.Measure{
			{Name: updateCPU, Unit: "µs", Budget: contest.Budget{AtMost: 12}},
			{Name: updateAllocs, Budget: contest.Budget{AtMost: 10}},
			{Name: updateBytes, Unit: "B"},
			{Name: updateWall, Unit: "µs"},
			{Name: updateEvents},
		},
		Contestants: []contest.Contestant{
			{Name: "informer", Run: informerUpdates(nil)},
			{Name: "informer, trimmed", Run: informerUpdates(trim)},
			{Name: "ours", Judged: true, Run: ourUpdates},
		},
	}
}

// isLast reports whether this is the last update: the server numbers its pods
// from 1,000,000,000 and the updates after them.
func isLast(revision uint64) bool { return revision == 1_000_000_000+updatePods+updates-1 }

// askForUpdates makes the server send them.
func askForUpdates(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/updates?n=%d", url, updates), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking for updates: %w", err)
	}
	return answer.Body.Close()
}

// measureUpdates asks for the updates and waits for the last one. receive
// returns how many events there were.
func measureUpdates(ctx context.Context, url string, receive func() (events int, err error)) (contest.Figures, error) {
	usage.Heap()
	begin, err := usage.Now()
	if err != nil {
		return nil, err
	}
	if err := askForUpdates(ctx, url); err != nil {
		return nil, err
	}
	events, err := receive()
	if err != nil {
		return nil, err
	}
	total, err := begin.Since()
	return contest.Figures{
		updateCPU: total.CPU / updates * 1e6, updateWall: total.Wall / updates * 1e6, updateEvents: float64(events) / updates,
		updateAllocs: total.Allocations / updates, updateBytes: total.AllocedBytes / updates,
	}, err
}

func ourUpdates(ctx context.Context, url string) (contest.Figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := newStream(url)
	if err != nil {
		return nil, err
	}
	if _, err := storeByNode(ctx, s); err != nil {
		return nil, err
	}
	next, stop := iter.Pull(s.Changes(ctx))
	defer stop()
	for batch, ok := next(); ok && !batch.Synced; batch, ok = next() {
	}
	return measureUpdates(ctx, url, func() (n int, err error) {
		for batch, ok := next(); ok; batch, ok = next() {
			n += len(batch.Changes)
			if last := batch.Changes[len(batch.Changes)-1]; isLast(uint64(last.Object.ResourceVersion)) {
				return n, nil
			}
		}
		return n, fmt.Errorf("the stream has ended: %w", context.Cause(ctx))
	})
}

func informerUpdates(transform cache.TransformFunc) runner {
	return func(ctx context.Context, url string) (contest.Figures, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		informer, err := newInformer(url, transform)
		if err != nil {
			return nil, err
		}
		n, last := 0, make(chan struct{})
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
			n++
			if revision, err := strconv.ParseUint(obj.(*corev1.Pod).ResourceVersion, 10, 64); err == nil && isLast(revision) {
				close(last)
			}
		}})
		if err != nil {
			return nil, err
		}
		if err := start(ctx, informer); err != nil {
			return nil, err
		}
		if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
			return nil, errNotSynced
		}
		return measureUpdates(ctx, url, func() (int, error) {
			select {
			case <-last:
				return n, nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		})
	}
}
