// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"
)

// keysPerLease bounds the keys of one lease: in etcd the cost of attaching a key grows
// with their number.
const keysPerLease = 1000

// leases tracks the leases of this process and the keys attached to them. It is safe
// for concurrent use.
type leases struct {
	ttl time.Duration
	// grant creates a lease and keeps it alive until the connection closes or lost
	// is called.
	grant func(ctx context.Context, ttl time.Duration, lost func()) (LeaseID, error)
	// restore is called for each key of a lost lease. It must not block.
	restore func(key string, lease LeaseID)
	// onLost is called for a lost lease with the number of its keys.
	onLost func(id LeaseID, keys int)

	grantLock *semaphore.Weighted // one lease is granted at a time

	mu       sync.Mutex
	attached map[LeaseID]map[string]struct{} // keys by lease, including those being written
	keys     map[string]leasedKey
	lost     int
	// maintained are keys, and prefixes with a slash at their end, that this process
	// keeps up to date.
	maintained []string
}

// leasedKey is a key that this process keeps in etcd.
type leasedKey struct {
	value    []byte
	lease    LeaseID // 0: lost, the key is to be restored
	revision int64   // of our last write
}

func newLeases(ttl time.Duration) *leases {
	return &leases{
		ttl: ttl, grantLock: semaphore.NewWeighted(1),
		attached: map[LeaseID]map[string]struct{}{}, keys: map[string]leasedKey{},
	}
}

// assign returns a lease for a key: its current one, one with room, or a new one. The
// key is counted on it from now on; see attach and release.
func (l *leases) assign(ctx context.Context, key string) (LeaseID, error) {
	if id := l.reserve(key); id != 0 {
		return id, nil
	}
	if l.grantLock.Acquire(ctx, 1) != nil {
		return 0, context.Cause(ctx)
	}
	defer l.grantLock.Release(1)
	if id := l.reserve(key); id != 0 { // granted by another caller meanwhile
		return id, nil
	}
	var id LeaseID
	granted := make(chan struct{})
	id, err := l.grant(ctx, l.ttl, func() { <-granted; l.markLost(id) })
	if err != nil {
		close(granted)
		return 0, err
	}
	l.mu.Lock()
	l.attached[id] = map[string]struct{}{key: {}}
	l.mu.Unlock()
	close(granted)
	return id, nil
}

func (l *leases) reserve(key string) LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id := l.keys[key].lease; id != 0 {
		return id
	}
	for _, id := range slices.Sorted(maps.Keys(l.attached)) {
		if attached := l.attached[id]; len(attached) < keysPerLease {
			attached[key] = struct{}{}
			return id
		}
	}
	return 0
}

// attach records that a key was written with a value on a lease. If the lease was lost
// meanwhile, the key is restored.
func (l *leases) attach(key string, value []byte, id LeaseID, revision int64) {
	l.mu.Lock()
	attached, alive := l.attached[id]
	k := leasedKey{value, id, revision}
	if !alive {
		k.lease = 0
	} else {
		attached[key] = struct{}{}
	}
	l.keys[key] = k
	l.mu.Unlock()
	if !alive {
		l.restore(key, id)
	}
}

// adopt records a key that was found on a lease with its desired value: it was put, and
// the answer was lost. It reports whether the lease is one of ours.
func (l *leases) adopt(key string, value []byte, id LeaseID, revision int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	attached, alive := l.attached[id]
	if k, known := l.keys[key]; alive && (!known || k.revision < revision) {
		attached[key] = struct{}{}
		l.keys[key] = leasedKey{value, id, revision}
	}
	return alive
}

// release stops tracking a key: it was deleted, has no lease, or its desired value is
// not known.
func (l *leases) release(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, key)
	for _, attached := range l.attached {
		delete(attached, key)
	}
}

// releaseUnused frees the place that assign reserved for a key that was not written.
func (l *leases) releaseUnused(key string) {
	if _, wanted := l.get(key); !wanted {
		l.release(key)
	}
}

// markLost drops a lease and restores its keys.
func (l *leases) markLost(id LeaseID) {
	l.mu.Lock()
	attached, ok := l.attached[id]
	delete(l.attached, id)
	var orphans []string
	for key := range attached {
		if k, ok := l.keys[key]; ok && k.lease == id {
			k.lease = 0
			l.keys[key] = k
			orphans = append(orphans, key)
		}
	}
	if ok {
		l.lost++
	}
	l.mu.Unlock()
	if !ok {
		return // already dropped
	}
	slices.Sort(orphans)
	l.onLost(id, len(orphans))
	for _, key := range orphans {
		l.restore(key, id)
	}
}

// get returns the recorded state of a key.
func (l *leases) get(key string) (leasedKey, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.keys[key]
	return k, ok
}

// hasUnleasedKeys reports whether keys other than synced markers are still to be restored.
func (l *leases) hasUnleasedKeys() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, k := range l.keys {
		if k.lease == 0 && !isSyncedMarker(key) {
			return true
		}
	}
	return false
}

// has reports whether a lease is one of ours and alive.
func (l *leases) has(id LeaseID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.attached[id]
	return ok
}

// ids returns the leases taken to be alive.
func (l *leases) ids() []LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.attached))
}

// lostCount returns how many leases were lost so far.
func (l *leases) lostCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// grantLease grants a lease and keeps it alive until the connection closes.
func (c *conn) grantLease(ctx context.Context, ttl time.Duration, lost func()) (LeaseID, error) {
	etcd, err := c.awaitClient(ctx)
	if err != nil {
		return 0, err
	}
	resp, err := etcd.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return 0, c.wrapError("grant a lease", "", err)
	}
	if err := c.keepAlive(etcd, resp.ID, lost); err != nil {
		return 0, err
	}
	return LeaseID(resp.ID), nil
}

// keepAlive keeps a lease alive until the connection closes. A dry run keeps none alive:
// its own do not expire.
func (c *conn) keepAlive(etcd *clientv3.Client, id clientv3.LeaseID, lost func()) error {
	if c.interceptor.overlay != nil {
		return nil
	}
	alive, err := etcd.KeepAlive(c.ctx, id)
	if err != nil {
		return c.wrapError("keep a lease alive", "", err)
	}
	c.goroutines.Go(func() {
		for range alive {
			continue
		}
		if c.ctx.Err() == nil {
			lost()
		}
	})
	return nil
}

// maintain records keys, and prefixes with a slash at their end, as maintained.
func (l *leases) maintain(keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maintained = append(l.maintained, keys...)
}

// maintains reports whether a key is maintained.
func (l *leases) maintains(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.maintained, func(m string) bool {
		return m == key || strings.HasSuffix(m, "/") && strings.HasPrefix(key, m)
	})
}

// add records a lease that was granted to another process, and reports whether it was
// not known.
func (l *leases) add(id LeaseID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.attached[id]; known {
		return false
	}
	l.attached[id] = map[string]struct{}{}
	return true
}

// adoptLease keeps a lease alive that an earlier process left, if it is like ours and all
// keys on it are maintained by this process.
func (c *conn) adoptLease(ctx context.Context, id LeaseID) error {
	etcd, err := c.awaitClient(ctx)
	if err != nil {
		return err
	}
	resp, err := etcd.TimeToLive(ctx, clientv3.LeaseID(id), clientv3.WithAttachedKeys())
	if err != nil {
		return c.wrapError("query the keys of lease", id.String(), err)
	}
	foreign := func(key []byte) bool { return !c.leases.maintains(string(key)) }
	if resp.TTL <= 0 || resp.GrantedTTL != int64(c.leases.ttl/time.Second) || slices.ContainsFunc(resp.Keys, foreign) || !c.leases.add(id) {
		return nil
	}
	err = c.keepAlive(etcd, resp.ID, func() { c.leases.markLost(id) })
	if err != nil {
		c.leases.markLost(id)
	}
	return err
}

// checkLeases queries the TTL of each lease and drops expired ones: etcd's client
// notices only at its next keep-alive, minutes later.
func (c *conn) checkLeases(ctx context.Context) error {
	for _, id := range c.leases.ids() {
		alive, err := c.leaseAlive(ctx, id)
		if err != nil {
			return err
		}
		if !alive {
			c.leases.markLost(id)
		}
	}
	return nil
}

func (c *conn) leaseAlive(ctx context.Context, id LeaseID) (bool, error) {
	etcd, err := c.awaitClient(ctx)
	if err != nil {
		return false, err
	}
	resp, err := etcd.TimeToLive(ctx, clientv3.LeaseID(id))
	if err != nil {
		return false, c.wrapError("query the TTL of lease", id.String(), err)
	}
	return resp.TTL >= 0, nil // -1: expired; 0: less than a second left
}
