// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// onDuty does something with an operator on a control plane that begins empty, when the operator leads and these kinds are
// defined.
func (b Bench) onDuty(ctx context.Context, flags []string, kinds []schema.GroupVersionResource, do func(context.Context, *plane, *operator) error) error {
	return b.onPlane(ctx, nil, func(ctx context.Context, p *plane) error {
		o, err := b.run(ctx, p, "operator-0", slices.Concat(raised, flags)...)
		if err != nil {
			return err
		}
		defer o.end(syscall.SIGKILL)
		if err := o.waits(ctx, true); err != nil {
			return err
		}
		for _, kind := range kinds {
			if err := p.defined(ctx, kind); err != nil {
				return err
			}
		}
		return do(ctx, p, o)
	})
}

// defined waits until the API server serves a kind.
func (p *plane) defined(ctx context.Context, kind schema.GroupVersionResource) error {
	return until(ctx, func() (bool, error) {
		_, err := p.client.Resource(kind).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// quiet is how long nothing happens when the rest is not going to come.
const quiet = 30 * time.Second

// await returns when all things have been seen, or when nothing was for a while, and those that were.
func (s *sightings[K]) await(ctx context.Context, things []K) (map[K]time.Time, error) {
	for {
		s.mu.Lock()
		seen, change := map[K]time.Time{}, s.change
		for _, thing := range things {
			if at, ok := s.at[thing]; ok {
				seen[thing] = at
			}
		}
		s.mu.Unlock()
		if len(seen) == len(things) {
			return seen, nil
		}
		select {
		case <-change:
		case <-time.After(quiet):
			return seen, nil
		case <-ctx.Done():
			return seen, context.Cause(ctx)
		}
	}
}

// numbered are n names that begin in the same way.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return names
}

// both are the things of a that are in b as well.
func both[K comparable](a, b map[K]time.Time) map[K]time.Time {
	common := maps.Clone(a)
	maps.DeleteFunc(common, func(thing K, _ time.Time) bool { return b[thing].IsZero() })
	return common
}

// seconds is how long after a moment the last thing was seen, 0 if none was.
func seconds(since time.Time, at map[string]time.Time) float64 {
	if len(at) == 0 {
		return 0
	}
	return max(0, latest(at).Sub(since).Seconds())
}

// perSecond is how often something is repeated a second, from the first time to the last. What happens once does not repeat.
func perSecond(times []time.Time) float64 {
	if len(times) < 2 {
		return 0
	}
	first, last := slices.MinFunc(times, time.Time.Compare), slices.MaxFunc(times, time.Time.Compare)
	return float64(len(times)-1) / last.Sub(first).Seconds()
}

// writesTo are when a user changed objects of a kind, and how many requests to do so conflicted.
func writesTo(all []request, kind schema.GroupVersionResource) (times []time.Time, conflicts int) {
	for _, r := range all {
		switch {
		case !r.mutates() || !r.about(kind):
		case r.ResponseStatus.Code == http.StatusConflict:
			conflicts++
		default:
			times = append(times, r.Received)
		}
	}
	return times, conflicts
}

// scaled names a measure at a size.
func scaled(measure string, n int) string { return fmt.Sprintf("%d: %s", n, measure) }

// counts are the sizes of scenarios in which growth is to show.
func (b Bench) counts(all ...int) []int {
	if !b.Quick {
		return all
	}
	small := slices.Clone(all)
	for i := range small {
		small[i] /= 10
	}
	return small
}
