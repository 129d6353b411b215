// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keysPerLease bounds what hangs on one lease: attaching a key costs etcd the
// more the more there are.
const keysPerLease = 1000

// leases are the leases of this process and the keys that hang on them. It is
// safe for concurrent use.
type leases struct {
	ttl time.Duration
	// grant makes a lease; its id stays alive until ctx, that of the
	// connection, ends or lost is called.
	grant func(ctx context.Context, ttl time.Duration, lost func()) (LeaseID, error)
	// restore is told about a key whose lease is lost. It must not block.
	restore func(key string, lease LeaseID)
	// tell is told about a lost lease and how many keys it had.
	tell func(id LeaseID, keys int)

	granting chan struct{} // held by who grants, so that one lease is made at a time

	mu   sync.Mutex
	live map[LeaseID]map[string]struct{} // keys attached, or about to be
	keys map[string]leasedKey
	lost int
}

// leasedKey is a key that this process wants to be there.
type leasedKey struct {
	value    []byte
	lease    LeaseID // 0: lost, to be written again
	revision int64   // of our last write
}

func newLeases(ttl time.Duration) *leases {
	return &leases{
		ttl: ttl, granting: make(chan struct{}, 1),
		live: map[LeaseID]map[string]struct{}{}, keys: map[string]leasedKey{},
	}
}

// assign finds a lease for a key: the one it has, or one with room, or a new
// one. The key counts for it from now on; see attach and release.
func (l *leases) assign(ctx context.Context, key string) (LeaseID, error) {
	if id := l.reserve(key); id != 0 {
		return id, nil
	}
	select {
	case l.granting <- struct{}{}:
		defer func() { <-l.granting }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if id := l.reserve(key); id != 0 { // of the lease that another made meanwhile
		return id, nil
	}
	var id LeaseID
	granted := make(chan struct{})
	id, err := l.grant(ctx, l.ttl, func() { <-granted; l.lose(id) })
	if err != nil {
		close(granted)
		return 0, err
	}
	l.mu.Lock()
	l.live[id] = map[string]struct{}{key: {}}
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
	for _, id := range slices.Sorted(maps.Keys(l.live)) {
		if attached := l.live[id]; len(attached) < keysPerLease {
			attached[key] = struct{}{}
			return id
		}
	}
	return 0
}

// attach remembers that a key was written with a value on a lease. If that was
// lost meanwhile, the key is restored.
func (l *leases) attach(key string, value []byte, id LeaseID, revision int64) {
	l.mu.Lock()
	attached, alive := l.live[id]
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

// adopt remembers a key that was found on a lease with the value that it should have:
// it was put there and the answer went astray. It reports whether the lease lives.
func (l *leases) adopt(key string, value []byte, id LeaseID, revision int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	attached, alive := l.live[id]
	if k, known := l.keys[key]; alive && (!known || k.revision < revision) {
		attached[key] = struct{}{}
		l.keys[key] = leasedKey{value, id, revision}
	}
	return alive
}

// release forgets a key: it was removed, has no lease any more, or its writer
// has yet to say what it should be.
func (l *leases) release(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, key)
	for _, attached := range l.live {
		delete(attached, key)
	}
}

// settle lets go of the place that was kept for a key that was not written.
func (l *leases) settle(key string) {
	if _, wanted := l.get(key); !wanted {
		l.release(key)
	}
}

// lose drops a lease that is gone, and has its keys written again.
func (l *leases) lose(id LeaseID) {
	l.mu.Lock()
	attached, ok := l.live[id]
	delete(l.live, id)
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
		return // known already
	}
	slices.Sort(orphans)
	l.tell(id, len(orphans))
	for _, key := range orphans {
		l.restore(key, id)
	}
}

// get is what is remembered of a key.
func (l *leases) get(key string) (leasedKey, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.keys[key]
	return k, ok
}

// orphaned reports whether keys, marks apart, wait to be written again.
func (l *leases) orphaned() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, k := range l.keys {
		if k.lease == 0 && !isMark(key) {
			return true
		}
	}
	return false
}

// holds reports whether a lease is one of ours that is alive.
func (l *leases) holds(id LeaseID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.live[id]
	return ok
}

// ids are the leases that count as alive.
func (l *leases) ids() []LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.live))
}

// losses is how many leases were lost so far.
func (l *leases) losses() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// grantLease makes a lease that is kept alive while the connection lives.
func (c *conn) grantLease(ctx context.Context, ttl time.Duration, lost func()) (LeaseID, error) {
	etcd, err := c.etcd(ctx)
	if err != nil {
		return 0, err
	}
	resp, err := etcd.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return 0, c.explain("grant a lease", "", err)
	}
	if c.gate.overlay != nil { // it is the plan's, and lives as long
		return LeaseID(resp.ID), nil
	}
	alive, err := etcd.KeepAlive(c.ctx, resp.ID)
	if err != nil {
		return 0, c.explain("keep a lease alive", "", err)
	}
	c.work.Go(func() {
		for range alive {
			continue
		}
		if c.ctx.Err() == nil {
			lost()
		}
	})
	return LeaseID(resp.ID), nil
}

// checkLeases asks etcd for each lease, and drops those that are gone: the
// client itself finds out only at its next keep-alive, minutes later.
func (c *conn) checkLeases(ctx context.Context) error {
	for _, id := range c.leases.ids() {
		alive, err := c.leaseAlive(ctx, id)
		if err != nil {
			return err
		}
		if !alive {
			c.leases.lose(id)
		}
	}
	return nil
}

func (c *conn) leaseAlive(ctx context.Context, id LeaseID) (bool, error) {
	etcd, err := c.etcd(ctx)
	if err != nil {
		return false, err
	}
	resp, err := etcd.TimeToLive(ctx, clientv3.LeaseID(id))
	if err != nil {
		return false, c.explain("look at lease", id.String(), err)
	}
	return resp.TTL >= 0, nil // -1 is gone, 0 less than a second
}
