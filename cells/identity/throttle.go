// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// createThrottle limits create requests to one per forbiddenPause while they are forbidden, and log messages to one per
// logInterval.
type createThrottle struct {
	mu         sync.Mutex
	refused    slim.Labels // the first that was forbidden since the last success
	forbidden  bool        // others were forbidden, too: it is the role
	next       time.Time   // of a request
	lastLogged map[string]time.Time
}

const (
	forbiddenPause = 5 * time.Second
	logInterval    = time.Minute
)

// pause is how long a request has to wait. One of the waiting requests is let through.
func (p *createThrottle) pause(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.forbidden {
		return 0
	}
	if wait := p.next.Sub(now); wait > 0 {
		return wait
	}
	p.next = now.Add(forbiddenPause)
	return 0
}

// recordForbidden records a forbidden request. One label set alone may be forbidden by an admission webhook, and
// throttles no others.
func (p *createThrottle) recordForbidden(of slim.Labels, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == (slim.Labels{}) {
		p.refused = of
	}
	p.forbidden = p.forbidden || p.refused != of
	p.next = now.Add(forbiddenPause)
}

// recordAllowed records a request that was not forbidden. It reports whether the last one was.
func (p *createThrottle) recordAllowed() (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = p.refused != (slim.Labels{})
	p.refused, p.forbidden = slim.Labels{}, false
	return changed
}

// shouldLog reports whether a message may be logged again.
func (p *createThrottle) shouldLog(message string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.lastLogged[message]; ok && now.Sub(last) < logInterval {
		return false
	}
	if p.lastLogged == nil {
		p.lastLogged = map[string]time.Time{}
	}
	p.lastLogged[message] = now
	return true
}

// reportForbidden reports in health whether creations are forbidden.
func (c *controller) reportForbidden(of slim.Labels, ref k8s.Ref, err error) {
	part := c.Health.Child("create")
	switch {
	case isForbidden(err):
		c.throttle.recordForbidden(of, time.Now())
		part.Degraded("it is forbidden to create ciliumidentities.cilium.io: pods with new labels do not start until the role, or the admission webhook, allows it", err)
		if c.throttle.shouldLog("forbidden", time.Now()) {
			c.Log.Warn("it is forbidden to create ciliumidentities.cilium.io, retrying", "error", err, "labels", of.String())
		}
	case err != nil && !k8s.IsAlreadyExists(err, ref): // it may be forbidden or not
	case c.throttle.recordAllowed():
		part.OK("")
	}
}

// isForbidden reports whether err is Forbidden, but not for the role: missing permissions are reported by the client, and
// the work queue waits for them.
func isForbidden(err error) bool {
	var lacks *k8s.PermissionError
	return apierrors.IsForbidden(err) && !errors.As(err, &lacks)
}

// reportExhausted counts and logs that no number is free.
func (c *controller) reportExhausted() {
	c.Metrics.Exhausted.Inc()
	if c.throttle.shouldLog("exhausted", time.Now()) {
		c.Log.Warn("no number of the cluster's range is free, pods with new labels do not start")
	}
}
