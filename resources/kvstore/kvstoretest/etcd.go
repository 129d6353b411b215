// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstoretest

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/skep-operator/skep/resources/clustertest"
)

// Etcd is a real etcd with a client that is independent of the code under test.
type Etcd struct {
	*clustertest.Etcd
	Client *clientv3.Client
	t      testing.TB
}

// Start runs an etcd until the test ends.
func Start(t testing.TB, members int, opts ...clustertest.EtcdOption) *Etcd {
	t.Helper()
	return Connect(t, clustertest.StartEtcd(t, members, opts...))
}

// Connect returns an etcd that runs, such as that of a control plane, with a client until the test ends.
func Connect(t testing.TB, e *clustertest.Etcd) *Etcd {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: e.Endpoints(), DialTimeout: time.Minute, Logger: zap.NewNop(),
		Username: e.Username(), Password: e.Password(), TLS: e.TLSConfig(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &Etcd{e, c, t}
}

// Get returns a key, nil if it does not exist.
func (e *Etcd) Get(key string) *mvccpb.KeyValue {
	e.t.Helper()
	resp, err := e.Client.Get(e.t.Context(), key)
	if err != nil {
		e.t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0]
}

// Revision returns etcd's current revision.
func (e *Etcd) Revision() int64 {
	e.t.Helper()
	resp, err := e.Client.Get(e.t.Context(), "no key")
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.Header.Revision
}

// Put writes a key on a lease; 0 is none. It returns the revision.
func (e *Etcd) Put(key, value string, lease clientv3.LeaseID) int64 {
	e.t.Helper()
	resp, err := e.Client.Put(e.t.Context(), key, value, clientv3.WithLease(lease))
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.Header.Revision
}

// Delete deletes a key.
func (e *Etcd) Delete(key string) {
	e.t.Helper()
	if _, err := e.Client.Delete(e.t.Context(), key); err != nil {
		e.t.Fatal(err)
	}
}

// Grant grants a lease.
func (e *Etcd) Grant(ttl time.Duration) clientv3.LeaseID {
	e.t.Helper()
	resp, err := e.Client.Grant(e.t.Context(), int64(ttl/time.Second))
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.ID
}

// Record holds the changes of a prefix, ordered by revision.
type Record struct {
	mu     sync.Mutex
	events []*clientv3.Event
}

// Follow records the changes of keys with a prefix, from a revision on, until the test
// ends.
func (e *Etcd) Follow(prefix string, from int64) *Record {
	e.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	changes := e.Client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from))
	r := &Record{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for resp := range changes {
			r.mu.Lock()
			r.events = append(r.events, resp.Events...)
			r.mu.Unlock()
		}
	})
	e.t.Cleanup(func() { cancel(); wg.Wait() })
	return r
}

// Events returns the changes so far.
func (r *Record) Events() []*clientv3.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)]
}

// Puts returns the number of puts so far.
func (r *Record) Puts() int {
	n := 0
	for _, e := range r.Events() {
		if e.Type == clientv3.EventTypePut {
			n++
		}
	}
	return n
}
