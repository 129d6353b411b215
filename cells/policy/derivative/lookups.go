// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/networkpolicy"
)

// lookupTimeout bounds a look-up of one group.
const lookupTimeout = time.Minute

// lookups asks providers for the addresses of groups, each group once in a refresh. It is safe for concurrent use.
type lookups struct {
	providers map[string]networkpolicy.Provider
	duration  *prometheus.HistogramVec

	mu      sync.Mutex
	results map[group]*result
	refresh int64 // the last one
	kept    int   // addresses of all results
}

// result is that of the last look-up of a group. A failure is not kept, but that it has too many addresses.
type result struct {
	mu        sync.Mutex // held during a look-up
	refresh   int64
	known     bool
	tooMany   bool
	addresses []netip.Addr
	kept      int // of them, as lookups count; under their lock
}

// maxKept is how many addresses are kept for the other policies of a refresh: those of ten policies that have as many as one may have. What is beyond is looked
// up for each policy.
const maxKept = 10 * maxAddresses

func newLookups(providers []networkpolicy.Provider, duration *prometheus.HistogramVec) *lookups {
	l := &lookups{providers: map[string]networkpolicy.Provider{}, duration: duration, results: map[group]*result{}}
	for _, p := range providers {
		l.providers[p.Name()] = p
	}
	return l
}

// all are the addresses of groups in a refresh. The error is networkpolicy.ErrTooManyAddresses as soon as they have too many together: no others are looked up then.
func (l *lookups) all(ctx context.Context, refresh int64, groups []group) (map[group][]netip.Addr, error) {
	found, sum := map[group][]netip.Addr{}, 0
	for _, g := range groups {
		addresses, err := l.one(ctx, refresh, g)
		if err != nil {
			return nil, err
		}
		if _, again := found[g]; !again {
			sum += len(addresses)
		}
		if found[g] = addresses; sum > maxAddresses {
			return nil, networkpolicy.ErrTooManyAddresses
		}
	}
	return found, nil
}

// lookupError is a look-up that failed.
type lookupError struct {
	provider string
	err      error // nil: there is no such provider
}

func (e *lookupError) Error() string {
	name := strings.ToUpper(e.provider)
	if e.err == nil {
		return fmt.Sprintf("Provider %s is not registered", name)
	}
	return shorten(fmt.Sprintf("Cannot retrieve data from %s provider: %v", name, e.err))
}

func (e *lookupError) Unwrap() error { return e.err }

func (l *lookups) one(ctx context.Context, refresh int64, g group) ([]netip.Addr, error) {
	provider := l.providers[g.provider]
	if provider == nil {
		return nil, &lookupError{g.provider, nil}
	}
	r := l.resultOf(refresh, g)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known && r.refresh == refresh {
		return r.addresses, r.err()
	}
	addresses, err := l.ask(ctx, provider, g)
	r.tooMany = errors.Is(err, networkpolicy.ErrTooManyAddresses) || len(addresses) > maxAddresses
	switch {
	case r.tooMany:
		addresses = nil
	case err != nil:
		return nil, &lookupError{g.provider, err}
	}
	r.refresh, r.addresses = refresh, nil
	if r.known = l.mayKeep(g, r, len(addresses)); r.known {
		r.addresses = addresses
	}
	return addresses, r.err()
}

func (r *result) err() error {
	if r.tooMany {
		return networkpolicy.ErrTooManyAddresses
	}
	return nil
}

// mayKeep reports whether the addresses of a result are kept, and counts them. One that was forgotten meanwhile is counted no more.
func (l *lookups) mayKeep(g group, r *result, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept -= r.kept
	r.kept = 0
	if l.results[g] != r || l.kept+n > maxKept {
		return false
	}
	r.kept = n
	l.kept += n
	return true
}

// resultOf is the last result for a group. A new refresh forgets groups that the last one did not ask for.
func (l *lookups) resultOf(refresh int64, g group) *result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if refresh > l.refresh {
		for g, r := range l.results {
			if r.mu.TryLock() {
				if r.refresh < l.refresh {
					l.kept -= r.kept
					r.kept = 0
					delete(l.results, g)
				}
				r.mu.Unlock()
			}
		}
		l.refresh = refresh
	}
	if l.results[g] == nil {
		l.results[g] = &result{refresh: refresh}
	}
	return l.results[g]
}

func (l *lookups) ask(ctx context.Context, provider networkpolicy.Provider, g group) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	began := time.Now()
	found, err := provider.Addresses(ctx, json.RawMessage(g.query))
	if err == nil {
		found, err = normalized(found)
	}
	outcome := "success"
	if err != nil {
		outcome = "fail"
	}
	l.duration.WithLabelValues(g.provider, outcome).Observe(time.Since(began).Seconds())
	return found, err
}
