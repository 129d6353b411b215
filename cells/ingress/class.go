// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// classHold is how long an IngressClass counts as it was when it is deleted: what replaces it deletes it before it creates it again.
const classHold = time.Minute

// defaultClass is whether Ingresses without a class are managed. It is used by all workers. The zero value is that they are not.
type defaultClass struct {
	mu   sync.Mutex
	is   bool
	gone time.Time // since when one that was the default is away
}

// decide returns whether they are, by what there is of the class (nil if it does not exist), and how long that is so only because it was.
func (d *defaultClass) decide(c *ingressClass, now time.Time) (is bool, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case c != nil:
		d.is, d.gone = isDefaultClass(c), time.Time{}
		return d.is, 0
	case !d.is:
		return false, 0
	case d.gone.IsZero():
		d.gone = now
	}
	if wait = classHold - now.Sub(d.gone); wait > 0 {
		return true, wait
	}
	d.is, d.gone = false, time.Time{}
	return false, 0
}

// byDefault reports whether Ingresses without a class are managed.
func (c *controller) byDefault() bool {
	is, _ := c.decideDefault()
	return is
}

func (c *controller) decideDefault() (is bool, wait time.Duration) {
	of, _ := c.classes.Get(slim.Key{Name: class}) // nil without
	return c.class.decide(of, time.Now())
}

// whileClassIsAway has what follows from the class decided again when that is not held any more.
func (c *controller) whileClassIsAway(r reconcile.Result) reconcile.Result {
	if _, wait := c.decideDefault(); wait > 0 && (r.RequeueAfter == 0 || wait < r.RequeueAfter) {
		r.RequeueAfter = wait
	}
	return r
}
