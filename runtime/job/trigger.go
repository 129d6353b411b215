// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package job

// Trigger asks a timer to run now. Its zero value is not usable; make one with
// [NewTrigger]. It is safe for concurrent use and serves one timer.
type Trigger struct{ c chan struct{} }

// NewTrigger returns a trigger that no job listens to yet. Triggering is
// remembered until one does.
func NewTrigger() *Trigger { return &Trigger{make(chan struct{}, 1)} }

// Trigger asks for a run. Requests that come before the run starts are one.
func (t *Trigger) Trigger() {
	select {
	case t.c <- struct{}{}:
	default:
	}
}

// wait is nil, which never delivers, for a nil trigger.
func (t *Trigger) wait() <-chan struct{} {
	if t == nil {
		return nil
	}
	return t.c
}

// clear forgets a request that the run about to start answers.
func (t *Trigger) clear() {
	select {
	case <-t.wait():
	default:
	}
}
