// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// namelessRelister relists while there is an object of which not even the name can be
// decoded: it may be any of them, so that nothing is deleted, and nothing follows from
// the absence of an object. If it was corrupted on its way, the new list is readable.
// The lock of the change list guards it.
type namelessRelister struct {
	timer  *time.Timer // nil: none is scheduled
	delays wait.Backoff
	asked  time.Time // the last relist
}

// firstRelist is the delay of the first new list. Later ones take longer, until
// none was necessary for relistQuiet.
const (
	firstRelist = time.Second
	relistQuiet = time.Minute
)

// scheduleNamelessRelist schedules a relist if there is an object without a name. The
// caller has the lock of the change list.
func (r *Reflector[P]) scheduleNamelessRelist() {
	l := &r.namelessRelists
	switch {
	case !r.changes.HasNameless():
		l.stop()
		return
	case l.timer != nil:
		return
	case time.Since(l.asked) > relistQuiet:
		l.delays = wait.Backoff{Duration: firstRelist, Factor: 2, Steps: 32, Cap: r.timing.retryMax}
	}
	delay := l.delays.Step()
	l.asked = time.Now().Add(delay)
	l.timer = time.AfterFunc(delay, func() {
		r.changes.Lock()
		l.timer = nil
		r.changes.Unlock()
		r.relists.add()
	})
}

func (l *namelessRelister) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}
