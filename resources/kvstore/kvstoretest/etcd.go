// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstoretest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/waittest"
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

// try repeats a request while etcd says that it has no leader or is out of time: a member
// on a busy machine may lose an election. A request that was carried out nevertheless is
// carried out twice, which no test has a use for; every other error fails the test.
func try[R any](e *Etcd, ask func(ctx context.Context) (R, error)) (response R) {
	e.t.Helper()
	waittest.Until(e.t, "etcd answers", func() bool {
		var err error
		response, err = ask(e.t.Context())
		if err != nil && !unavailable(err) {
			e.t.Fatal(err)
		}
		return err == nil
	})
	return response
}

func unavailable(err error) bool {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code() == codes.Unavailable
	}
	return status.Code(err) == codes.Unavailable
}

// Get returns a key, nil if it does not exist.
func (e *Etcd) Get(key string) *mvccpb.KeyValue {
	e.t.Helper()
	resp := try(e, func(ctx context.Context) (*clientv3.GetResponse, error) { return e.Client.Get(ctx, key) })
	if len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0]
}

// Revision returns etcd's current revision.
func (e *Etcd) Revision() int64 {
	e.t.Helper()
	return try(e, func(ctx context.Context) (*clientv3.GetResponse, error) { return e.Client.Get(ctx, "no key") }).Header.Revision
}

// Put writes a key on a lease; 0 is none. It returns the revision.
func (e *Etcd) Put(key, value string, lease clientv3.LeaseID) int64 {
	e.t.Helper()
	return try(e, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return e.Client.Put(ctx, key, value, clientv3.WithLease(lease))
	}).Header.Revision
}

// Delete deletes a key.
func (e *Etcd) Delete(key string) {
	e.t.Helper()
	try(e, func(ctx context.Context) (*clientv3.DeleteResponse, error) { return e.Client.Delete(ctx, key) })
}

// Grant grants a lease.
func (e *Etcd) Grant(ttl time.Duration) clientv3.LeaseID {
	e.t.Helper()
	return try(e, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return e.Client.Grant(ctx, int64(ttl/time.Second))
	}).ID
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
