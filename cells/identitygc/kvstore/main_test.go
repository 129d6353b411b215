// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

// IDKV-1 and IDKV-2.
func TestCell(t *testing.T) {
	for _, mode := range []string{"kvstore", "doublewrite-readkvstore", "doublewrite-readcrd"} {
		celltest.Check(t, Cell, append(kvstoretest.Unreachable("--identity-allocation-mode="+mode), celltest.With(identitygc.Cell))...)
	}
}

const (
	ids    = "cilium/state/identities/v1/id/"
	values = "cilium/state/identities/v1/value/"
)

// spy stands between the cell and its client: it counts scans, and lets a test interfere at a certain moment.
type spy struct {
	kvstore.Client
	before   func(scan int)                      // before the listing of identities
	onList   func(scan int, prefix string) error // before each listing
	onRemove func(all []kvstore.Removal) error   // before a request
	lost     int                                 // leases

	mu    sync.Mutex
	scans int
}

// between makes the cell use the spy.
func (s *spy) between() cell.Cell {
	return cell.Decorate(func(c kvstore.Client) kvstore.Client { s.Client = c; return s })
}

func (s *spy) List(ctx context.Context, prefix string, opts ...kvstore.ListOption) (kvstore.Listing, error) {
	s.mu.Lock()
	if prefix == ids {
		s.scans++
	}
	scan := s.scans
	s.mu.Unlock()
	if prefix == ids && s.before != nil {
		s.before(scan)
	}
	if s.onList != nil {
		if err := s.onList(scan, prefix); err != nil {
			return kvstore.Listing{}, err
		}
	}
	return s.Client.List(ctx, prefix, opts...)
}

func (s *spy) RemoveEach(ctx context.Context, all []kvstore.Removal) ([]bool, error) {
	if s.onRemove != nil {
		if err := s.onRemove(all); err != nil {
			return nil, err
		}
	}
	return s.Client.RemoveEach(ctx, all)
}

func (s *spy) Status() kvstore.Status {
	status := s.Client.Status()
	status.LeasesLost += s.lost
	return status
}

func (s *spy) begun() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scans
}

// ran waits until so many scans have begun: all sweeps but the last have ended.
func (s *spy) ran(t *testing.T, scans int) {
	t.Helper()
	operatortest.Eventually(t, fmt.Sprintf("%d scans", scans), func() bool { return s.begun() >= scans })
}

// told is what is told of deleted identities.
type told struct {
	mu  sync.Mutex
	all []identity.Number
}

func (d *told) Deleted(numbers ...identity.Number) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, numbers...)
}

func (d *told) numbers() []identity.Number {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]identity.Number(nil), d.all...)
}

// lead runs an operator that sweeps often, at a rate that does not matter.
func lead(t *testing.T, endpoint string, s *spy, args ...string) (*operatortest.Operator, *told) {
	t.Helper()
	d := &told{}
	args = append([]string{"--identity-gc-interval=100ms", "--identity-gc-rate-limit=100000000"}, args...)
	deletions := cell.Provide(func() identity.Deletions { return d })
	return operatortest.Start(t, cell.Set(kvstore.Cell, identitygc.Cell, Cell, deletions, s.between()), "", kvstoretest.Args(endpoint, args...)...), d
}

// names are the keys with a prefix, which is left out.
func names(t *testing.T, e *kvstoretest.Etcd, prefix string) []string {
	t.Helper()
	resp, err := e.Client.Get(context.Background(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Error(err)
		return nil
	}
	var all []string
	for _, kv := range resp.Kvs {
		all = append(all, strings.TrimPrefix(string(kv.Key), prefix))
	}
	return all
}

// fill puts identities from a number on, each with labels of its own, of which every second is in use.
func fill(t *testing.T, e *kvstoretest.Etcd, from, n int) {
	t.Helper()
	var ops []clientv3.Op
	flush := func() {
		if _, err := e.Client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
		ops = nil
	}
	for i := range n {
		labels := fmt.Sprintf("k8s:app=web-%d;k8s:io.kubernetes.pod.namespace=shop;", from+i)
		ops = append(ops, clientv3.OpPut(ids+fmt.Sprint(from+i), labels))
		if i%2 == 0 {
			ops = append(ops, clientv3.OpPut(values+labels+"/10.0.0.1", fmt.Sprint(from+i)))
		}
		if len(ops) > 120 {
			flush()
		}
	}
	if len(ops) > 0 {
		flush()
	}
}
