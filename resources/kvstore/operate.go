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

func (c *client) Status() Status { return c.status.current() }

func (c *client) AwaitConnected(ctx context.Context) error {
	defer health.Waiting(ctx, "etcd", "it was not reached yet")()
	return c.await(ctx, c.connected)
}

func (c *client) LeaseAlive(ctx context.Context, id LeaseID) (alive bool, err error) {
	err = c.do(ctx, func(ctx context.Context, _ *clientv3.Client) error {
		alive, err = c.leaseAlive(ctx, id)
		return err
	})
	return alive, err
}

// do runs an operation under the module's share of the rate and its time limit.
func (c *client) do(ctx context.Context, operation func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(withClient(ctx, c)), c.timing.operation)
	defer cancel()
	etcd, err := c.etcd(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	release, err := c.limiter.Acquire(ctx, c.module)
	c.metrics.Waited.WithLabelValues(c.module).Observe(time.Since(began).Seconds())
	if err != nil {
		return fmt.Errorf("waiting for a share of etcd.qps (%d) or etcd.maxInflight (%d): %w", c.options.qps, c.options.inFlight, err)
	}
	defer release()
	return operation(ctx, etcd)
}

func (c *client) Get(ctx context.Context, key string) (entry *Entry, err error) {
	entry, _, err = c.look(ctx, key)
	return entry, err
}

// look reads a key, and says as of which revision.
func (c *client) look(ctx context.Context, key string) (entry *Entry, revision int64, err error) {
	err = c.do(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		entry, revision, err = c.get(ctx, etcd, key)
		return err
	})
	return entry, revision, err
}

func (c *client) get(ctx context.Context, etcd *clientv3.Client, key string) (*Entry, int64, error) {
	began := time.Now()
	resp, err := etcd.Get(ctx, key)
	c.metrics.did(key, "read", "get", began, err)
	if err != nil {
		return nil, 0, c.explain("get", key, err)
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
	revision, err := c.commit(ctx, batch{
		writes: []Write{PutLeased(key, value)},
		moot: func(ctx context.Context, etcd *clientv3.Client) (bool, error) {
			is, _, err := c.get(ctx, etcd, key)
			if err != nil || is == nil || !bytes.Equal(is.Value, value) || !c.leases.holds(is.Lease) {
				return false, err
			}
			c.leases.attach(key, value, is.Lease, is.ModRevision)
			return true, nil
		},
	})
	return revision != 0, err
}

// restoreKey writes a key again whose lease was lost.
func (c *conn) restoreKey(ctx context.Context, key string) error {
	k, wanted := c.leases.get(key)
	if !wanted {
		return nil
	}
	if isMark(key) && c.leases.orphaned() {
		return reconcile.After(firstPause) // it says that the others are there
	}
	_, err := (&client{c, "kvstore"}).commit(ctx, batch{
		writes: []Write{PutLeased(key, k.value)},
		keep:   true,
		moot: func(context.Context, *clientv3.Client) (bool, error) {
			now, wanted := c.leases.get(key)
			return !wanted || now.lease != 0, nil // somebody was here first
		},
	})
	return err
}

// batch is writes that are done together.
type batch struct {
	guards []Guard
	writes []Write
	// keep goes on wanting leased keys of which it is not known whether they
	// were written.
	keep bool
	// moot is asked, if set, once no other writer is at the keys: true leaves
	// them as they are.
	moot func(context.Context, *clientv3.Client) (bool, error)
	// doubt is told, if set, of an attempt that failed, and may be done yet.
	doubt func()
}

func (b batch) keys() []string {
	keys := make([]string, len(b.writes))
	for i, w := range b.writes {
		keys[i] = w.key
	}
	return keys
}

// commit makes the writes of a batch and returns their revision. It is 0 where
// a guard did not hold, or the writes are moot. A lease that turns out to be
// gone is replaced at once. Attempts without an answer are repeated, but for those
// with guards: the second would not know the first one's doing.
func (c *client) commit(ctx context.Context, b batch) (revision int64, err error) {
	if len(b.writes) == 0 {
		return 0, errors.New("etcd: nothing to write")
	}
	err = c.do(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		unlock, err := c.locks.lock(ctx, b.keys()...)
		if err != nil {
			return c.explain("write", b.writes[0].key, err)
		}
		defer unlock()
		if b.moot != nil {
			if moot, err := b.moot(ctx, etcd); moot || err != nil {
				return err
			}
		}
		attempt := func() error {
			revision, err = c.try(ctx, etcd, b)
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				revision, err = c.try(ctx, etcd, b)
			}
			return err
		}
		if len(b.guards) > 0 {
			return attempt()
		}
		return untilAnswered(ctx, attempt)
	})
	return revision, err
}

// try makes one attempt. The caller is alone at the keys.
func (c *client) try(ctx context.Context, etcd *clientv3.Client, b batch) (revision int64, err error) {
	ids := make([]LeaseID, len(b.writes))
	for i, w := range b.writes {
		if w.leased {
			if ids[i], err = c.leases.assign(ctx, w.key); err != nil {
				return 0, err
			}
		}
	}
	revision, err = c.send(ctx, etcd, b, ids)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		for _, id := range ids {
			c.leases.lose(id)
		}
		return 0, err
	}
	if err != nil && b.doubt != nil {
		b.doubt()
	}
	if err == nil && revision == 0 {
		for _, w := range b.writes {
			c.leases.settle(w.key)
		}
		return 0, nil
	}
	for i, w := range b.writes {
		switch {
		case err == nil && w.leased:
			c.leases.attach(w.key, w.value, ids[i], revision)
		case err == nil || !b.keep:
			c.leases.release(w.key)
		}
	}
	return revision, err
}

// send makes the request: a plain one for one write without a guard.
func (c *client) send(ctx context.Context, etcd *clientv3.Client, b batch, ids []LeaseID) (revision int64, err error) {
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
	c.metrics.did(first.key, first.kind(), action, began, err)
	return revision, c.explain(action, first.key, err)
}
