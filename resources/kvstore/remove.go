// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Removal is the deletion of a key while its guards hold.
type Removal struct {
	Key    string
	Guards []Guard
}

const (
	// removalsPerRequest keeps a request well below etcd's limit of 1.5 MiB, and its time in etcd below that of a page of
	// a listing.
	removalsPerRequest = 512
	// removalsPerGroup and a few guards are within etcd's limit of 128 operations, which counts the depth of a
	// transaction.
	removalsPerGroup = 64
)

func (c *client) RemoveEach(ctx context.Context, all []Removal) ([]bool, error) {
	var removed []bool
	var tooLarge tooLarge
	for some := range slices.Chunk(all, removalsPerRequest) {
		done, err := c.removeSome(ctx, some, &tooLarge)
		removed = append(removed, done...)
		if err != nil {
			return removed, err
		}
	}
	return removed, tooLarge.err()
}

// tooLarge are removals that etcd takes in no request, not even alone.
type tooLarge struct {
	keys  int
	first error
}

func (t *tooLarge) err() error {
	if t.keys == 0 {
		return nil
	}
	return fmt.Errorf("%d keys cannot be removed, since etcd refuses what has to be compared; remove them by hand, at first: %w", t.keys, t.first)
}

// removeSome makes one request, or several if etcd's limits are lower than usual or keys are very long.
func (c *client) removeSome(ctx context.Context, all []Removal, tooLarge *tooLarge) ([]bool, error) {
	removed, err := c.removeAtOnce(ctx, all)
	switch {
	case err == nil || !exceedsLimit(err):
		return removed, err
	case len(all) == 1:
		if tooLarge.keys++; tooLarge.first == nil {
			tooLarge.first = err
		}
		return []bool{false}, nil // the others go on
	}
	half := len(all) / 2
	if removed, err = c.removeSome(ctx, all[:half], tooLarge); err != nil {
		return removed, err
	}
	rest, err := c.removeSome(ctx, all[half:], tooLarge)
	return append(removed, rest...), err
}

// removeAtOnce makes one request.
func (c *client) removeAtOnce(ctx context.Context, all []Removal) (removed []bool, err error) {
	err = c.do(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		keys := make([]string, len(all))
		for i, r := range all {
			keys[i] = r.Key
		}
		unlock, err := c.locks.lock(ctx, keys...)
		if err != nil {
			return c.wrapError("delete", keys[0], err)
		}
		defer unlock()
		if removed, err = c.sendRemovals(ctx, etcd, all); err != nil {
			return c.wrapError("delete", keys[0], err)
		}
		for i, done := range removed {
			if done {
				c.leases.release(keys[i])
			}
		}
		return nil
	})
	return removed, err
}

// sendRemovals sends a transaction of groups of transactions, each of which has its own guards.
func (c *client) sendRemovals(ctx context.Context, etcd *clientv3.Client, all []Removal) ([]bool, error) {
	var groups []clientv3.Op
	for some := range slices.Chunk(all, removalsPerGroup) {
		each := make([]clientv3.Op, len(some))
		for i, r := range some {
			guards := make([]clientv3.Cmp, len(r.Guards))
			for j, g := range r.Guards {
				guards[j] = g.cmp
			}
			each[i] = clientv3.OpTxn(guards, []clientv3.Op{clientv3.OpDelete(r.Key)}, nil)
		}
		groups = append(groups, clientv3.OpTxn(nil, each, nil))
	}
	began := time.Now()
	resp, err := etcd.Txn(ctx).Then(groups...).Commit()
	c.metrics.observeRequest(all[0].Key, "delete", "txn", began, err)
	if err != nil {
		return nil, err
	}
	var removed []bool
	for _, group := range resp.Responses {
		for _, each := range group.GetResponseTxn().GetResponses() {
			removed = append(removed, each.GetResponseTxn().GetSucceeded())
		}
	}
	if len(removed) != len(all) {
		return nil, errors.New("the answer does not fit the request")
	}
	return removed, nil
}

// exceedsLimit reports whether fewer removals in a request would be accepted.
func exceedsLimit(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrRequestTooLarge) || status.Code(err) == codes.ResourceExhausted
}
