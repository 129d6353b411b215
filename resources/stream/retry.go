// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"time"

	"golang.org/x/time/rate"
)

// A RetryPolicy decides what becomes of a key whose event was Done with an
// error. attempt counts the failures of the key in a row, from 1. It is called
// without locks, by the goroutine that calls Done, and may be called by several
// at once.
type RetryPolicy func(attempt int, err error) Retry

// Retry is the decision of a RetryPolicy.
type Retry struct {
	action retryAction
	after  time.Duration
}

type retryAction uint8

const (
	finished retryAction = iota // Done(nil), or as good as
	again
	stop
)

// Again delivers the newest state of the key after the delay. A change of the
// key comes at once, whatever the delay.
func Again(after time.Duration) Retry { return Retry{action: again, after: after} }

// GiveUp takes the event as done: the key comes again when it changes.
func GiveUp() Retry { return Retry{action: finished} }

// Stop ends the subscription.
func Stop() Retry { return Retry{action: stop} }

// The default back-off, per key and for all keys of a subscription together.
const (
	DefaultBackoffBase  = 5 * time.Millisecond
	DefaultBackoffMax   = 1000 * time.Second
	DefaultRetriesRate  = 10 // per second
	DefaultRetriesBurst = 100
)

// Backoff retries for ever, after base, 2·base, 4·base … up to max.
func Backoff(base, max time.Duration) RetryPolicy {
	return func(attempt int, _ error) Retry {
		delay := base
		for range attempt - 1 {
			if delay >= max/2 {
				return Again(max)
			}
			delay *= 2
		}
		return Again(min(delay, max))
	}
}

// Limited makes the retries of policy share a rate: over burst they come at most
// perSecond times a second.
func Limited(policy RetryPolicy, perSecond float64, burst int) RetryPolicy {
	limiter := rate.NewLimiter(rate.Limit(perSecond), burst)
	return func(attempt int, err error) Retry {
		r := policy(attempt, err)
		if r.action == again {
			r.after = max(r.after, limiter.Reserve().Delay())
		}
		return r
	}
}

// AtMost gives up on a key after n failures in a row and follows policy until
// then.
func AtMost(n int, policy RetryPolicy) RetryPolicy {
	return func(attempt int, err error) Retry {
		if attempt >= n {
			return GiveUp()
		}
		return policy(attempt, err)
	}
}

// defaultRetry returns a policy for one subscription.
func defaultRetry() RetryPolicy {
	return Limited(Backoff(DefaultBackoffBase, DefaultBackoffMax), DefaultRetriesRate, DefaultRetriesBurst)
}
