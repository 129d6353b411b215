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
	// counts are those of writes and deletes since a time, of keys that are not remembered as too many.
	counts map[string]written
	since  time.Time
}

// written is how often a key was written and deleted.
type written struct{ puts, deletes int }

// Keys of one source, those that are fought over, and deletes are counted, as for objects (K8S-25): more of them within the window are braked.
const (
	mostPuts    = 30
	mostDeletes = 10
	countWindow = time.Minute
)

type foughtKey struct {
	k8s.Undone
	isNew  bool // another value is to be written, which was not undone yet
	churns bool // it is changed, or written and deleted, more often than in ordinary life, whatever the reason
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
	if u == nil || u.isNew && !u.churns {
		return 0
	}
	return u.Wait(now)
}

// Put counts a put that was made. The key has one source, or is counted while others fight over it alone: the keys of what has many backends
// change often in ordinary life.
func (c *Contention) Put(key string, oneSource bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if oneSource || c.keys[key] != nil {
		c.count(key, now, written{puts: 1})
	}
}

// Deleted counts a delete that was made.
func (c *Contention) Deleted(key string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count(key, now, written{deletes: 1})
}

// count has a key wait that is written too often. The caller holds the lock.
func (c *Contention) count(key string, now time.Time, more written) {
	k := c.keys[key]
	if k != nil && k.IsOver(now) {
		k.churns = false
	}
	if k == nil || !k.churns {
		if now.Sub(c.since) > countWindow || len(c.counts) >= maxFought {
			c.since, c.counts = now, map[string]written{}
		}
		n := c.counts[key]
		n.puts, n.deletes = n.puts+more.puts, n.deletes+more.deletes
		c.counts[key] = n
		if n.puts <= mostPuts && n.deletes <= mostDeletes {
			return
		}
		if k = c.remembered(key, now); k == nil {
			return
		}
		delete(c.counts, key)
		k.churns = true
	}
	k.Exceed(now)
	c.show(now)
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
	text := fmt.Sprintf("the key %s changes again and again, since what it is made of does, or another writer creates it after each delete; it is written again in %s",
		worst, c.keys[worst].Wait(now).Round(time.Second))
	if !c.keys[worst].churns {
		text = c.undoneText(worst, now)
	}
	if fought > 1 {
		text += fmt.Sprintf("; and %d more keys", fought-1)
	}
	c.health.Degraded(text, nil)
}

func (c *Contention) undoneText(key string, now time.Time) string {
	return fmt.Sprintf("another writer has changed the key %s %d times after it was written or deleted here; it is written again in %s: stop the operator of another cluster with the same name, or what else writes there",
		key, c.keys[key].Times(), c.keys[key].Wait(now).Round(time.Second))
}
