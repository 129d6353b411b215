// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"fmt"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/health"
)

// contention are the keys that another writer changes after each of our writes. Each of them is written slower and slower, and told in
// health; others are not held up (KV-S7).
type contention struct {
	prefix string
	health health.Reporter
	keys   map[string]*foughtKey // by name
}

type foughtKey struct {
	k8s.Undone
	isNew bool // another value is to be written, which was not undone yet
}

func newContention(prefix string, h health.Reporter) contention {
	return contention{prefix, h.Child("contention"), map[string]*foughtKey{}}
}

// maxFought bounds the keys that are remembered.
const maxFought = 8192

// undone counts a key that was as desired, and is not any more.
func (c *contention) undone(name string, now time.Time) {
	if c.keys[name] == nil {
		if len(c.keys) >= maxFought {
			c.forgetOver(now)
		}
		if len(c.keys) >= maxFought {
			return
		}
		c.keys[name] = &foughtKey{}
	}
	c.keys[name].Add(now)
	c.show(now)
}

// wait is how long a key is not to be written.
func (c *contention) wait(name string, now time.Time) time.Duration {
	u := c.keys[name]
	if u == nil || u.isNew {
		return 0
	}
	return u.Wait(now)
}

// changed says that another value is desired of a key: it is written at once.
func (c *contention) changed(name string, is bool) {
	if u := c.keys[name]; u != nil {
		u.isNew = is
	}
}

// rest is how long a key that is as desired has to stay so, until it counts as one that others leave alone; 0 for one that does.
func (c *contention) rest(name string, now time.Time) time.Duration {
	u := c.keys[name]
	if u == nil || !u.IsFought() {
		return 0
	}
	if u.IsOver(now) {
		delete(c.keys, name)
		c.show(now)
		return 0
	}
	return u.Rest(now)
}

func (c *contention) forgetOver(now time.Time) {
	for name, u := range c.keys {
		if u.IsOver(now) {
			delete(c.keys, name)
		}
	}
}

// show has health name the key that was undone most often.
func (c *contention) show(now time.Time) {
	worst, most, fought := "", 0, 0
	for name, u := range c.keys {
		if !u.IsFought() || u.IsOver(now) {
			continue
		}
		fought++
		if u.Times() > most || u.Times() == most && name < worst {
			worst, most = name, u.Times()
		}
	}
	if fought == 0 {
		c.health.OK("")
		return
	}
	text := fmt.Sprintf("another writer has changed the key %s %d times after it was written here; it is written again in %s: stop the operator of another cluster with the same name, or what else writes there",
		c.prefix+worst, most, c.keys[worst].Wait(now).Round(time.Second))
	if fought > 1 {
		text += fmt.Sprintf("; and %d more keys", fought-1)
	}
	c.health.Degraded(text, nil)
}
