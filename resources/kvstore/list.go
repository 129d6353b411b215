// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (c *client) List(ctx context.Context, prefix string, opts ...ListOption) (Listing, error) {
	var o listOptions
	for _, apply := range opts {
		apply(&o)
	}
	var listing Listing
	atLeast := c.restores.latestRevision() // includes all earlier writes
	err := c.doPaged(ctx, func(ctx context.Context, etcd *clientv3.Client) (err error) {
		for ctx.Err() == nil {
			listing = Listing{}
			listing.Revision, err = c.pages(ctx, etcd, prefix, o, atLeast, func() {}, func(e Entry) bool {
				listing.Entries = append(listing.Entries, e)
				return true
			})
			if !errors.Is(err, rpctypes.ErrCompacted) { // compacted between two pages
				break
			}
		}
		return err
	})
	if err != nil {
		return Listing{}, err
	}
	return listing, nil
}

// errStopped is returned by pages when the consumer stops.
var errStopped = errors.New("the consumer stopped")

// pages reads a prefix page by page, all pages at the revision of the first, which is
// at least atLeast: if a member lags behind, the read is repeated with a quorum. arrived
// is called after each page, before its entries.
func (c *client) pages(ctx context.Context, etcd *clientv3.Client, prefix string, o listOptions, atLeast int64, arrived func(), each func(Entry) bool) (revision int64, err error) {
	options := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))}
	if o.keysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	first := append(options, clientv3.WithLimit(int64(c.options.pageSize)))
	resp, err := c.page(ctx, etcd, prefix, prefix, append(first, clientv3.WithSerializable()))
	if err == nil && resp.Header.Revision < atLeast {
		resp, err = c.page(ctx, etcd, prefix, prefix, first)
	}
	if err != nil {
		return 0, err
	}
	revision = resp.Header.Revision
	for {
		arrived()
		for _, kv := range resp.Kvs {
			if !each(entryOf(kv)) {
				return revision, errStopped
			}
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return revision, nil
		}
		next := string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		limit := clientv3.WithLimit(int64(c.options.nextPage(len(resp.Kvs), (*pb.RangeResponse)(resp).Size())))
		if resp, err = c.page(ctx, etcd, prefix, next, append(options, limit, clientv3.WithRev(revision), clientv3.WithSerializable())); err != nil {
			return 0, err
		}
	}
}

func (c *client) page(ctx context.Context, etcd *clientv3.Client, prefix, from string, options []clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.operation)
	defer cancel()
	began := time.Now()
	resp, err := etcd.Get(ctx, from, options...)
	c.metrics.observeRequest(prefix, "read", "list", began, err)
	return resp, c.wrapError("list", prefix, err)
}
