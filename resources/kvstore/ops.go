// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/health"
)

// client implements Client for one module.
type client struct {
	*conn
	module string
}

func (c *client) Status() Status { return c.health.current() }

func (c *client) AwaitConnected(ctx context.Context) error {
	defer health.ReportBlocked(ctx, "etcd", "not connected yet")()
	return c.await(ctx, c.connected)
}

func (c *client) LeaseAlive(ctx context.Context, id LeaseID) (alive bool, err error) {
	err = c.do(ctx, func(ctx context.Context, _ *clientv3.Client) error {
		alive, err = c.leaseAlive(ctx, id)
		return err
	})
	return alive, err
}

// do runs an operation within the module's share of the rate limit and the timeout.
func (c *client) do(ctx context.Context, operation func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(withClient(ctx, c)), c.timing.operation)
	defer cancel()
	etcd, release, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	return operation(ctx, etcd)
}

// doPaged is do for an operation of many requests, each of which has the timeout.
func (c *client) doPaged(ctx context.Context, operation func(context.Context, *clientv3.Client) error) error {
	ctx = clientv3.WithRequireLeader(withClient(ctx, c))
	bounded, cancel := context.WithTimeout(ctx, c.timing.operation)
	defer cancel()
	etcd, release, err := c.acquire(bounded)
	if err != nil {
		return err
	}
	defer release()
	return operation(ctx, etcd)
}

// acquire waits for the connection and the rate limit.
func (c *client) acquire(ctx context.Context) (etcd *clientv3.Client, release func(), err error) {
	if etcd, err = c.awaitClient(ctx); err != nil {
		return nil, nil, err
	}
	began := time.Now()
	release, err = c.limiter.Acquire(ctx, c.module)
	c.metrics.Waited.WithLabelValues(c.module).Observe(time.Since(began).Seconds())
	if err != nil {
		return nil, nil, fmt.Errorf("wait for the rate limit, etcd.qps (%d) or etcd.maxInflight (%d): %w", c.options.qps, c.options.inFlight, err)
	}
	return etcd, release, nil
}

func (c *client) Get(ctx context.Context, key string) (entry *Entry, err error) {
	entry, _, err = c.getWithRevision(ctx, key)
	return entry, err
}

// getWithRevision reads a key and returns the revision of the answer.
func (c *client) getWithRevision(ctx context.Context, key string) (entry *Entry, revision int64, err error) {
	err = c.do(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		entry, revision, err = c.get(ctx, etcd, key)
		return err
	})
	return entry, revision, err
}

func (c *client) get(ctx context.Context, etcd *clientv3.Client, key string) (*Entry, int64, error) {
	began := time.Now()
	resp, err := etcd.Get(ctx, key)
	c.metrics.observeRequest(key, "read", "get", began, err)
	if err != nil {
		return nil, 0, c.wrapError("get", key, err)
	}
	if len(resp.Kvs) == 0 {
		return nil, resp.Header.Revision, nil
	}
	e := entryOf(resp.Kvs[0])
	return &e, resp.Header.Revision, nil
}

func entryOf(kv *mvccpb.KeyValue) Entry {
	return Entry{
		Key: string(kv.Key), Value: kv.Value, Lease: LeaseID(kv.Lease),
		CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
	}
}

func (c *client) Write(ctx context.Context, writes ...Write) error {
	_, err := c.commit(ctx, batch{writes: writes})
	return err
}

func (c *client) WriteIf(ctx context.Context, guards []Guard, writes ...Write) (bool, error) {
	revision, err := c.commit(ctx, batch{guards: guards, writes: writes})
	return revision != 0, err
}

func (c *client) Ensure(ctx context.Context, key string, value []byte) (bool, error) {
	var found *Entry // on the lease of another process; nil once a write may have been sent
	revision, err := c.commit(ctx, batch{
		writes: []Write{PutLeased(key, value)},
		skipIf: func(ctx context.Context, etcd *clientv3.Client) (bool, error) {
			is, _, err := c.get(ctx, etcd, key)
			if err != nil || is == nil || !bytes.Equal(is.Value, value) {
				return false, err
			}
			if !c.leases.has(is.Lease) {
				found = is
				return false, nil
			}
			c.leases.attach(key, value, is.Lease, is.ModRevision)
			return true, nil
		},
		skipOn: func(id LeaseID) bool {
			is := found
			found = nil
			if is == nil || is.Lease != id {
				return false
			}
			c.leases.attach(key, value, id, is.ModRevision)
			return true
		},
	})
	return revision != 0, err
}

// restoreKey writes a key of a lost lease again.
func (c *conn) restoreKey(ctx context.Context, key string) error {
	k, wanted := c.leases.get(key)
	if !wanted {
		return nil
	}
	if isSyncedMarker(key) && c.leases.hasUnleasedKeys() {
		return reconcile.RequeueAfter(initialPause) // the marker comes after all other keys
	}
	_, err := (&client{c, "kvstore"}).commit(ctx, batch{
		writes:     []Write{PutLeased(key, k.value)},
		keepLeased: true,
		skipIf: func(context.Context, *clientv3.Client) (bool, error) {
			now, wanted := c.leases.get(key)
			return !wanted || now.lease != 0, nil // already written
		},
	})
	return err
}

// batch is a set of writes made together.
type batch struct {
	guards []Guard
	writes []Write
	// keepLeased keeps tracking leased keys whose write has an unknown outcome.
	keepLeased bool
	// skipIf, if set, is called with the keys locked; true skips the writes.
	skipIf func(context.Context, *clientv3.Client) (bool, error)
	// skipOn, if set, is called with the lease of the only write before each attempt;
	// true skips the write. A lease may be adopted after skipIf.
	skipOn func(LeaseID) bool
}

func (b batch) keys() []string {
	keys := make([]string, len(b.writes))
	for i, w := range b.writes {
		keys[i] = w.key
	}
	return keys
}

// commit makes the writes of a batch and returns their revision, 0 if a guard failed
// or the writes were skipped. A lease found to be expired is replaced at once. Unanswered
// attempts are repeated unless the batch has guards: a repeated transaction cannot tell
// its first attempt from the write of another.
func (c *client) commit(ctx context.Context, b batch) (revision int64, err error) {
	if len(b.writes) == 0 {
		return 0, errors.New("etcd: nothing to write")
	}
	if err := checkSize(b.writes); err != nil {
		return 0, err
	}
	err = c.do(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		unlock, err := c.locks.lock(ctx, b.keys()...)
		if err != nil {
			return c.wrapError("write", b.writes[0].key, err)
		}
		defer unlock()
		if b.skipIf != nil {
			if moot, err := b.skipIf(ctx, etcd); moot || err != nil {
				return err
			}
		}
		attempt := func() error {
			revision, err = c.commitOnce(ctx, etcd, b)
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				revision, err = c.commitOnce(ctx, etcd, b)
			}
			return err
		}
		if len(b.guards) > 0 {
			return attempt()
		}
		return retryUnanswered(ctx, attempt)
	})
	return revision, err
}

// commitOnce makes one attempt. The caller holds the locks of the keys.
func (c *client) commitOnce(ctx context.Context, etcd *clientv3.Client, b batch) (revision int64, err error) {
	ids := make([]LeaseID, len(b.writes))
	for i, w := range b.writes {
		if w.leased {
			if ids[i], err = c.leases.assign(ctx, w.key); err != nil {
				return 0, err
			}
		}
	}
	if b.skipOn != nil && b.skipOn(ids[0]) {
		return 0, nil
	}
	revision, err = c.sendBatch(ctx, etcd, b, ids)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		for _, id := range ids {
			c.leases.markLost(id)
		}
		return 0, err
	}
	if err == nil && revision == 0 {
		for _, w := range b.writes {
			c.leases.releaseUnused(w.key)
		}
		return 0, nil
	}
	for i, w := range b.writes {
		switch {
		case err == nil && w.leased:
			c.leases.attach(w.key, w.value, ids[i], revision)
		case err == nil || !b.keepLeased:
			c.leases.release(w.key)
		}
	}
	return revision, err
}

// sendBatch sends the request: a transaction if there are guards or several writes.
func (c *client) sendBatch(ctx context.Context, etcd *clientv3.Client, b batch, ids []LeaseID) (revision int64, err error) {
	first, action, began := b.writes[0], "txn", time.Now()
	ops := make([]clientv3.Op, len(b.writes))
	for i, w := range b.writes {
		ops[i] = w.op(ids[i])
	}
	switch {
	case len(b.guards) > 0 || len(ops) > 1:
		conditions := make([]clientv3.Cmp, len(b.guards))
		for i, g := range b.guards {
			conditions[i] = g.cmp
		}
		var resp *clientv3.TxnResponse
		if resp, err = etcd.Txn(ctx).If(conditions...).Then(ops...).Commit(); err == nil && resp.Succeeded {
			revision = resp.Header.Revision
		}
	case first.remove:
		action = "delete"
		var resp *clientv3.DeleteResponse
		if resp, err = etcd.Delete(ctx, first.key); err == nil {
			revision = resp.Header.Revision
		}
	default:
		action = "put"
		var resp clientv3.OpResponse
		if resp, err = etcd.Do(ctx, ops[0]); err == nil {
			revision = resp.Put().Header.Revision
		}
	}
	c.metrics.observeRequest(first.key, first.kind(), action, began, err)
	if isSizeError(err) {
		return 0, largest(b.writes, true)
	}
	return revision, c.wrapError(action, first.key, err)
}
