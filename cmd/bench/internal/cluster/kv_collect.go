// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// The names of what is measured of the identity collection.
const (
	collectAll      = "start of the process → the last unused identity is deleted"
	collectDeleting = "first deletion → last deletion"
	collectRequests = "requests, all"
	collectWrites   = "requests that write"
	collectLive     = "identities in use that were deleted"
	collectHeap     = "live heap afterwards"
)

// collectInterval is that of the sweeps: identities are deleted by the second.
const collectInterval = 10 * time.Second

func (b KVBench) collectContest() contest.Contest {
	return contest.Contest{
		Name: "identities", Title: fmt.Sprintf("%d identities in etcd, every other one unused", b.Identities),
		Note: fmt.Sprintf("The operator sweeps every %s, and its own limit of deletes is off. etcd's own client lists the same keys in pages of 256 and deletes as many by transactions of 128. ", collectInterval) +
			"The original needs over 40 minutes, by the rules of its rates (not measured).",
		Contestants: kvContestants,
		Measures: []contest.Measure{
			{Name: collectAll, Unit: "s"}, {Name: collectDeleting, Unit: "s"},
			{Name: collectRequests, Budget: contest.Budget{AtMost: 400 * max(1, float64(b.Identities)/50_000)}}, {Name: collectWrites},
			{Name: collectLive, Budget: contest.Budget{Nothing: true}}, {Name: collectHeap, Unit: "MB"},
		},
	}
}

const (
	identityIDs    = "cilium/state/identities/v1/id/"
	identityValues = "cilium/state/identities/v1/value/"
	firstIdentity  = 1<<16 + 256 // of the cluster with the id 1
)

// identityLabels are the labels of an identity, as its key has them.
func identityLabels(i int) string {
	return fmt.Sprintf("k8s:app=app-%d;k8s:io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name=shop;k8s:io.cilium.k8s.policy.cluster=%s;", i, keysOf)
}

// fillIdentities puts n identities; the even ones are in use.
func (s *store) fillIdentities(ctx context.Context, n int) error {
	lease, err := s.client.Grant(ctx, 3600)
	if err != nil {
		return err
	}
	return paced(ctx, 0, n, func(ctx context.Context, i int) error {
		id := strconv.Itoa(firstIdentity + i)
		if _, err := s.client.Put(ctx, identityIDs+id, identityLabels(i)); err != nil || i%2 == 1 {
			return err
		}
		_, err := s.client.Put(ctx, identityValues+identityLabels(i)+"/192.168.0.1", id, clientv3.WithLease(lease.ID))
		return err
	})
}

func (b KVBench) collect(ctx context.Context, r record) error {
	return b.onStore(ctx, 1, func(ctx context.Context, p *plane, s *store) error {
		b.Progress(fmt.Sprintf("writing %d identities", b.Identities))
		if err := s.fillIdentities(ctx, b.Identities); err != nil {
			return err
		}
		if err := b.bareCollect(ctx, s, r); err != nil {
			return err
		}
		keys, err := s.track(ctx, identityIDs)
		if err != nil {
			return err
		}
		before, err := s.traffic(ctx)
		if err != nil {
			return err
		}
		b.Progress("the operator starts")
		o, err := b.start(ctx, p, s, "--identity-allocation-mode=kvstore", "--identity-gc-interval="+collectInterval.String(),
			"--identity-gc-rate-limit=1000000", "--identity-gc-rate-interval=1s", "--sweep-max-share=1")
		if err != nil {
			return err
		}
		defer o.end(syscall.SIGKILL)
		left := (b.Identities + 1) / 2
		if err := keys.holds(ctx, func(t *tracker) bool { return len(t.values) <= left }); err != nil {
			return fmt.Errorf("%d of %d were deleted: %w", keys.count(), b.Identities/2, err)
		}
		after, err := s.traffic(ctx)
		if err != nil {
			return err
		}
		did := after.since(before)
		first, last := keys.span()
		if err := sleep(ctx, 2*collectInterval); err != nil { // what else is deleted
			return err
		}
		heap, _, _, err := o.memory(ctx)
		r(ours, contest.Figures{
			collectAll: last.Sub(o.began).Seconds(), collectDeleting: last.Sub(first).Seconds(),
			collectRequests: did.reads + did.writes, collectWrites: did.writes, collectLive: keys.liveDeleted(), collectHeap: heap,
		})
		return err
	})
}

// liveDeleted counts the identities in use among those that were deleted.
func (t *tracker) liveDeleted() (n float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.gone {
		if id, err := strconv.Atoi(strings.TrimPrefix(key, identityIDs)); err == nil && (id-firstIdentity)%2 == 0 {
			n++
		}
	}
	return n
}

// bareCollect lists both prefixes, and deletes as many keys, of its own.
func (b KVBench) bareCollect(ctx context.Context, s *store, r record) error {
	for i := range b.Identities / 2 { // by transactions of 128 puts
		if i%128 != 0 {
			continue
		}
		var puts []clientv3.Op
		for j := i; j < min(i+128, b.Identities/2); j++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("bench/id/%08d", j), identityLabels(j)))
		}
		if _, err := s.client.Txn(ctx).Then(puts...).Commit(); err != nil {
			return err
		}
	}
	before, err := s.traffic(ctx)
	if err != nil {
		return err
	}
	for _, prefix := range []string{identityIDs, identityValues} {
		if err := s.list(ctx, prefix); err != nil {
			return err
		}
	}
	began := time.Now()
	for i := 0; i < b.Identities/2; i += 128 {
		var deletes []clientv3.Op
		for j := i; j < min(i+128, b.Identities/2); j++ {
			deletes = append(deletes, clientv3.OpDelete(fmt.Sprintf("bench/id/%08d", j)))
		}
		if _, err := s.client.Txn(ctx).Then(deletes...).Commit(); err != nil {
			return err
		}
	}
	took := time.Since(began)
	after, err := s.traffic(ctx)
	did := after.since(before)
	r(bare, contest.Figures{collectDeleting: took.Seconds(), collectRequests: did.reads + did.writes, collectWrites: did.writes})
	return err
}

// list reads a prefix in pages of 256.
func (s *store) list(ctx context.Context, prefix string) error {
	for from := prefix; ; {
		resp, err := s.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(256))
		if err != nil || !resp.More {
			return err
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}
