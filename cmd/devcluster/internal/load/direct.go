// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// A transaction stays below etcd's limit on the size of a request and, so that
// the API server's watches get their events in digestible pieces, small.
const (
	batchBytes = 512 << 10
	batchOps   = 100
)

// Direct writes a load straight into etcd, whether an API server runs on it or
// not. Objects that exist are replaced.
func Direct(ctx context.Context, client *clientv3.Client, opts Options, progress *Progress) error {
	p, err := newPlan(opts)
	if err != nil {
		return err
	}
	e, err := newEncoder()
	if err != nil {
		return err
	}
	for _, ph := range p.phases(true) {
		progress.begin(ph.name, ph.count)
		err := inParallel(ctx, ph.count, runtime.GOMAXPROCS(0), func(ctx context.Context, next func() (int, bool)) error {
			return writeDirectly(ctx, client, e, ph, next, progress)
		})
		if err != nil {
			return fmt.Errorf("load %s: %w", ph.name, err)
		}
		progress.end()
	}
	return nil
}

// inParallel runs workers that take numbers below n from next until there is
// none left.
func inParallel(ctx context.Context, n, workers int, work func(ctx context.Context, next func() (int, bool)) error) error {
	var taken atomic.Int64
	next := func() (int, bool) {
		i := int(taken.Add(1)) - 1
		return i, i < n
	}
	group, ctx := errgroup.WithContext(ctx)
	for range min(workers, n) {
		group.Go(func() error { return work(ctx, next) })
	}
	return group.Wait()
}

func writeDirectly(ctx context.Context, client *clientv3.Client, e *encoder, ph phase, next func() (int, bool), progress *Progress) error {
	var batch []clientv3.Op
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if _, err := client.Txn(ctx).Then(batch...).Commit(); err != nil {
			return fmt.Errorf("write into etcd: %w", err)
		}
		progress.add(len(batch))
		batch, size = batch[:0], 0
		return nil
	}
	for i, ok := next(); ok; i, ok = next() {
		key, value, err := e.encode(ph.item(i))
		if err != nil {
			return err
		}
		if size+len(value) > batchBytes || len(batch) == batchOps {
			if err := flush(); err != nil {
				return err
			}
		}
		batch = append(batch, clientv3.OpPut(key, string(value)))
		size += len(value)
	}
	return flush()
}
