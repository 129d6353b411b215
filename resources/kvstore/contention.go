// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"fmt"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/health"
)

// Contention are the keys that another writer changes, deletes or creates after each of our writes. Each of them is written slower and
// slower, and named in health; others are not held up (KV-S7). Every duty that writes a key because of an event of that key has one. It is
// safe for concurrent use.
type Contention struct {
	health health.Reporter

	mu   sync.Mutex
	keys map[string]*foughtKey
}

type foughtKey struct {
	k8s.Undone
	isNew bool // another value is to be written, which was not undone yet
}

// NewContention returns a Contention that degrades the part "contended-keys" of a health.
func NewContention(h health.Reporter) *Contention {
	return &Contention{health: h.Child("contended-keys"), keys: map[string]*foughtKey{}}
}

// maxFought bounds the keys that are remembered.
const maxFought = 8192

// Undone counts a key that was as desired, and is not any more.
func (c *Contention) Undone(key string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.remembered(key, now); k != nil {
		k.Add(now)
		c.show(now)
	}
}

// remembered is what is known of a key, nil if there are too many. The caller holds the lock.
func (c *Contention) remembered(key string, now time.Time) *foughtKey {
	if k := c.keys[key]; k != nil {
		return k
	}
	if len(c.keys) >= maxFought {
		c.forgetOver(now)
	}
	if len(c.keys) >= maxFought {
		return nil
	}
	k := &foughtKey{}
	c.keys[key] = k
	return k
}

// Wait is how long a key is not to be written.
func (c *Contention) Wait(key string, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.keys[key]
	if u == nil || u.isNew {
		return 0
	}
	return u.Wait(now)
}

// Changed says whether another value is desired of a key than the one that was undone, which is written at once, or, as the value is written,
// that it is not so any more.
func (c *Contention) Changed(key string, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.keys[key]; u != nil {
		u.isNew = is
	}
}

// Rest is how long a key that is as desired has to stay so, until it counts as one that others leave alone; 0 for one that does.
func (c *Contention) Rest(key string, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.keys[key]
	if u == nil || !u.IsFought() {
		return 0
	}
	if u.IsOver(now) {
		delete(c.keys, key)
		c.show(now)
		return 0
	}
	return u.Rest(now)
}

// Done is the result of an attempt that has found or brought a key as desired: nil, or that it is looked at again once others have left it
// alone for long enough, so that health recovers.
func (c *Contention) Done(key string) error {
	if pause := c.Rest(key, time.Now()); pause > 0 {
		return reconcile.RequeueAfter(pause)
	}
	return nil
}

// forgetOver forgets the keys that others leave alone. The caller holds the lock.
func (c *Contention) forgetOver(now time.Time) {
	for key, u := range c.keys {
		if u.IsOver(now) {
			delete(c.keys, key)
		}
	}
}

// show has health name the key that was undone most often. The caller holds the lock.
func (c *Contention) show(now time.Time) {
	worst, most, fought := "", 0, 0
	for key, u := range c.keys {
		if !u.IsFought() || u.IsOver(now) {
			continue
		}
		fought++
		if u.Times() > most || u.Times() == most && key < worst {
			worst, most = key, u.Times()
		}
	}
	if fought == 0 {
		c.health.OK("")
		return
	}
	text := fmt.Sprintf("another writer has changed the key %s %d times after it was written or deleted here; it is written again in %s: stop the operator of another cluster with the same name, or what else writes there",
		worst, most, c.keys[worst].Wait(now).Round(time.Second))
	if fought > 1 {
		text += fmt.Sprintf("; and %d more keys", fought-1)
	}
	c.health.Degraded(text, nil)
}
