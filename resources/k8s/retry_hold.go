// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Hold is how long a failed attempt has to wait for the next one, whatever happens
// meanwhile. The work queues keep it.
type Hold struct {
	Cause HoldCause
	Pause time.Duration
	// Granted, if set, ends the hold early when it is closed.
	Granted <-chan struct{}
	// Detail is a clause for health, "" if the error suffices.
	Detail string
}

// HoldCause is a kind of failure that many attempts have in common.
type HoldCause int

// The causes of holds.
const (
	NoHold       HoldCause = iota // the attempt failed for reasons of its own: events may bring another
	Throttled                     // the API server asks for a pause
	Unbelieved                    // the response is not that of the API server
	NotStored                     // the response does not show the change
	Contended                     // another writer undoes the change
	NotPermitted                  // the role lacks a permission
)

const (
	// longestPause bounds the pause that an API server, or a proxy before it, asks for.
	longestPause = 5 * time.Minute
	// grantPause is how long an attempt waits for a permission that nothing reports as
	// granted.
	grantPause = 10 * time.Minute
)

// awaiting is an error of an attempt that is worth another one as soon as a channel is closed, whatever is left of its back-off.
type awaiting interface{ Awaited() <-chan struct{} }

// HoldOf is the hold that an error causes. backOff is the pause without a hold.
func HoldOf(err error, backOff time.Duration, now time.Time) Hold {
	var (
		permission *PermissionError
		contention *ContentionError
		dropped    *NotStoredError
		invalid    *InvalidResponseError
		waiting    awaiting
	)
	switch {
	case errors.As(err, &permission):
		return Hold{Cause: NotPermitted, Pause: grantPause, Granted: permission.Granted}
	case errors.As(err, &contention):
		return Hold{Cause: Contended, Pause: max(0, contention.Until.Sub(now))}
	case errors.As(err, &dropped):
		return Hold{Cause: NotStored, Pause: backOff}
	case errors.As(err, &invalid):
		return Hold{Cause: Unbelieved, Pause: backOff}
	}
	asked := retryAfter(err)
	switch {
	case asked == 0 && errors.As(err, &waiting):
		return Hold{Pause: backOff, Granted: waiting.Awaited()}
	case asked == 0:
		return Hold{Pause: backOff}
	}
	detail := fmt.Sprintf("the API server asks for a pause of %s", asked)
	if asked > longestPause {
		detail += fmt.Sprintf(", which is cut to %s", longestPause)
	}
	return Hold{Cause: Throttled, Pause: max(backOff, min(asked, longestPause)), Detail: detail}
}

// retryAfter is the pause that the API server asks for before another attempt, 0 if it
// does not.
func retryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(max(0, seconds)) * time.Second
}
