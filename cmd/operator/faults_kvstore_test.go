// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// etcdUnderFaults is an etcd whose keys are deleted and changed by hand, and in which
// locks are left over.
type etcdUnderFaults struct {
	*turmoil
	locks map[string]time.Time // since when
}

// lockDue is when a lock is taken away that a term has seen all the time: by its
// third look at the latest.
const lockDue = 2*25*time.Second + calmsWithin

func keysUnderFaults(f *turmoil) underFaults {
	e := &etcdUnderFaults{turmoil: f, locks: map[string]time.Time{}}
	return underFaults{
		name:    "keys of etcd",
		args:    withEtcd(f.etcd),
		churn:   []func(){e.dropHeartbeat, e.dropConfig, e.changeConfig, e.leakLock},
		newTerm: e.checkLocks,
		rest:    e.rest,
		grace:   e.grace,
	}
}

func (e *etcdUnderFaults) dropHeartbeat() { e.etcd.Delete(heartbeatKey) }
func (e *etcdUnderFaults) dropConfig()    { e.etcd.Delete(configKey) }
func (e *etcdUnderFaults) changeConfig()  { e.etcd.Put(configKey, "{}", 0) }

func (e *etcdUnderFaults) leakLock() {
	if len(e.locks) < 100 {
		key := fmt.Sprintf("cilium/state/identities/v1/locks/leaked-%d/%x", e.number(), e.r.Uint32())
		e.etcd.Put(key, "", 0)
		e.locks[key] = time.Now()
	}
}

// checkLocks waits until those are gone that the term must have removed.
func (e *etcdUnderFaults) checkLocks() {
	eventually(e.t, "locks that are due are gone", func() bool { return len(e.stuckLocks()) == 0 })
}

func (e *etcdUnderFaults) stuckLocks() map[string]time.Time {
	if e.losses() != e.lost {
		e.termBegins()
	}
	stuck := map[string]time.Time{}
	for key, since := range e.locks {
		if time.Since(since) < lockDue || time.Since(e.term) < lockDue {
			continue
		}
		if e.etcd.Get(key) != nil {
			stuck[key] = since
		} else {
			delete(e.locks, key)
		}
	}
	return stuck
}

// recent reports whether a heartbeat, of which there is one in a second and whose
// text has no parts of it, was made a moment ago.
func recent(heartbeat string) bool {
	at, err := time.Parse(time.RFC3339, heartbeat)
	return err == nil && time.Since(at) < 4*time.Second
}

func (e *etcdUnderFaults) rest() error {
	beat, config := e.etcd.Get(heartbeatKey), e.etcd.Get(configKey)
	switch {
	case beat == nil || beat.Lease == 0 || config == nil || config.Lease == 0:
		return fmt.Errorf("the heartbeat is %v, the configuration %v", beat, config)
	case !recent(string(beat.Value)):
		return fmt.Errorf("the last heartbeat was at %s", beat.Value)
	case !strings.HasPrefix(string(config.Value), `{"id":1,"capabilities":`):
		return fmt.Errorf("the configuration is %s", config.Value)
	}
	return nil
}

func (e *etcdUnderFaults) grace() error {
	if stuck := e.stuckLocks(); len(stuck) > 0 {
		return fmt.Errorf("locks are still there: %v", slices.Sorted(maps.Keys(stuck)))
	}
	return nil
}
