// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
			listing, o.long = Listing{}, 0
			listing.Revision, err = c.pages(ctx, etcd, prefix, o, atLeast, func() {}, func(e Entry) bool {
				listing.Entries = append(listing.Entries, o.bounded(e))
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

const (
	// beginning is what is kept of a key that is too large.
	beginning = 256
	// longEntry is from how many bytes on entries have no more than mostLong together.
	longEntry = 4 << 10
	mostLong  = 16 << 20
)

// bounded is an entry without what is larger than was asked for.
func (o *listOptions) bounded(e Entry) Entry {
	if o.most == 0 {
		return e
	}
	most := o.most
	if size := len(e.Key) + len(e.Value); size > longEntry {
		if o.long+size > mostLong {
			most = longEntry
		} else {
			o.long += size
		}
	}
	if len(e.Value) > most {
		e.Value, e.IsLarge = nil, true
	}
	if len(e.Key) > most+1<<10 {
		e.Key, e.IsLarge = strings.Clone(e.Key[:beginning]), true
	}
	return e
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
	resp, err := c.page(ctx, etcd, prefix, prefix, c.options.pageSize, append(options, clientv3.WithSerializable()))
	if err == nil && resp.Header.Revision < atLeast {
		resp, err = c.page(ctx, etcd, prefix, prefix, c.options.pageSize, options)
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
		limit := c.options.nextPage(len(resp.Kvs), (*pb.RangeResponse)(resp).Size())
		if resp, err = c.page(ctx, etcd, prefix, next, limit, append(options, clientv3.WithRev(revision), clientv3.WithSerializable())); err != nil {
			return 0, err
		}
	}
}

// page reads at most limit keys, 0 for all there are. A page that is too large for a message is asked for with half as many keys.
func (c *client) page(ctx context.Context, etcd *clientv3.Client, prefix, from string, limit int, options []clientv3.OpOption) (*clientv3.GetResponse, error) {
	for {
		resp, err := c.readPage(ctx, etcd, prefix, from, append(options, clientv3.WithLimit(int64(limit))))
		if !isTooLarge(err) || limit == 1 {
			return resp, c.wrapError("list", prefix, err)
		}
		if limit == 0 {
			limit = maxPage
		}
		limit /= 2
	}
}

func (c *client) readPage(ctx context.Context, etcd *clientv3.Client, prefix, from string, options []clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timing.operation)
	defer cancel()
	began := time.Now()
	resp, err := etcd.Get(ctx, from, options...)
	c.metrics.observeRequest(prefix, "read", "list", began, err)
	return resp, err
}

// isTooLarge reports whether an answer is larger than a message may be. etcd itself has other limits with the same code.
func isTooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(status.Convert(err).Message(), "larger than max")
}
