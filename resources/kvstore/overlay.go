// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/skep-operator/skep/resources/dryrun"
)

// overlay holds the writes of a dry run: the keys as they would be after the writes
// planned so far, and leases of its own. Reads and watches include it. A planned key
// that another process writes meanwhile is dropped from the overlay.
//
// A nil overlay means a real run.
type overlay struct {
	plan     *dryrun.Plan
	inFlight atomic.Int64 // requests in flight
	txnLock  sync.Mutex   // one transaction at a time

	mu       sync.Mutex
	revision int64 // of the last write
	lease    int64
	keys     map[string]plannedKey
	changed  []string      // keys, in the order of their writes
	extended chan struct{} // closed and replaced with each write
	ttls     map[int64]int64
}

// plannedKey is a key of the overlay.
type plannedKey struct {
	base int64            // revision of the key in etcd that it replaces, 0 for none
	kv   *mvccpb.KeyValue // nil: deleted
	at   int64            // revision in the overlay
}

// firstPlannedRevision is the first revision and lease of an overlay, beyond all of
// etcd's.
const firstPlannedRevision = 1 << 62

func newOverlay(p *dryrun.Plan) *overlay {
	if p == nil {
		return nil
	}
	return &overlay{
		plan: p, revision: firstPlannedRevision, lease: firstPlannedRevision,
		keys: map[string]plannedKey{}, extended: make(chan struct{}), ttls: map[int64]int64{},
	}
}

// invokeFunc sends a read to etcd.
type invokeFunc func(method string, req, reply any) error

// handle answers a request. real sends reads to etcd.
func (o *overlay) handle(ctx context.Context, method string, req, reply any, real invokeFunc) error {
	o.plan.Moved()
	o.inFlight.Add(1)
	defer o.inFlight.Add(-1)
	switch r := req.(type) {
	case *pb.RangeRequest:
		return o.read(r, reply.(*pb.RangeResponse), real)
	case *pb.PutRequest, *pb.DeleteRangeRequest:
		op := requestOp(r)
		done, err := o.commit(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{op}}, real)
		if err != nil {
			return err
		}
		switch answer := reply.(type) {
		case *pb.PutResponse:
			*answer = *done.Responses[0].GetResponsePut()
			answer.Header = done.Header
		case *pb.DeleteRangeResponse:
			*answer = *done.Responses[0].GetResponseDeleteRange()
			answer.Header = done.Header
		}
		return nil
	case *pb.TxnRequest:
		done, err := o.commit(ctx, r, real)
		if err == nil {
			*reply.(*pb.TxnResponse) = *done
		}
		return err
	case *pb.LeaseGrantRequest:
		o.mu.Lock()
		defer o.mu.Unlock()
		o.lease++
		o.ttls[o.lease] = r.TTL
		*reply.(*pb.LeaseGrantResponse) = pb.LeaseGrantResponse{Header: &pb.ResponseHeader{Revision: o.revision}, ID: o.lease, TTL: r.TTL}
		return nil
	case *pb.LeaseTimeToLiveRequest:
		o.mu.Lock()
		ttl, ours := o.ttls[r.ID]
		o.mu.Unlock()
		if !ours {
			return real(method, req, reply)
		}
		*reply.(*pb.LeaseTimeToLiveResponse) = pb.LeaseTimeToLiveResponse{Header: &pb.ResponseHeader{}, ID: r.ID, TTL: ttl, GrantedTTL: ttl}
		return nil
	}
	if slices.Contains(readMethods, method) {
		return real(method, req, reply)
	}
	return fmt.Errorf("etcd %s: not supported in a dry run", path.Base(method))
}

func requestOp(r any) *pb.RequestOp {
	if put, ok := r.(*pb.PutRequest); ok {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r.(*pb.DeleteRangeRequest)}}
}

// read reads a range of keys, page by page while pages are empty after the merge.
func (o *overlay) read(r *pb.RangeRequest, reply *pb.RangeResponse, real invokeFunc) error {
	for next := *r; ; {
		page := &pb.RangeResponse{}
		if err := real("/etcdserverpb.KV/Range", &next, page); err != nil {
			return err
		}
		last := ""
		if n := len(page.Kvs); n > 0 && page.More {
			last = string(page.Kvs[n-1].Key)
		}
		page.Kvs = o.merge(&next, page.Kvs, last)
		page.Count = max(page.Count, int64(len(page.Kvs)))
		if !page.More {
			page.Count = int64(len(page.Kvs))
		}
		if len(page.Kvs) > 0 || last == "" {
			*reply = *page
			return nil
		}
		next.Key = []byte(last + "\x00")
	}
}

// merge adds planned keys to a page of etcd's. last is the last key of a page that is
// followed by others.
func (o *overlay) merge(r *pb.RangeRequest, kvs []*mvccpb.KeyValue, last string) []*mvccpb.KeyValue {
	o.mu.Lock()
	defer o.mu.Unlock()
	merged := map[string]*mvccpb.KeyValue{}
	for _, kv := range kvs {
		o.dropIfStale(string(kv.Key), kv.ModRevision)
		merged[string(kv.Key)] = kv
	}
	for key, k := range o.keys {
		switch {
		case !inRange(key, r.Key, r.RangeEnd) || last != "" && key > last:
		case k.kv == nil:
			delete(merged, key)
		case r.KeysOnly:
			bare := *k.kv
			bare.Value = nil
			merged[key] = &bare
		default:
			merged[key] = k.kv
		}
	}
	return slices.SortedFunc(maps.Values(merged), func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
}

// dropIfStale drops a planned key that was written in etcd meanwhile. The caller holds
// the lock.
func (o *overlay) dropIfStale(key string, revision int64) {
	if k, planned := o.keys[key]; planned && revision > k.base {
		delete(o.keys, key)
	}
}

// inRange reports whether a key is in a range of etcd's notation.
func inRange(key string, from, to []byte) bool {
	switch {
	case len(to) == 0:
		return key == string(from)
	case len(to) == 1 && to[0] == 0:
		return key >= string(from)
	}
	return key >= string(from) && key < string(to)
}

// commit evaluates a transaction.
func (o *overlay) commit(ctx context.Context, r *pb.TxnRequest, real invokeFunc) (*pb.TxnResponse, error) {
	o.txnLock.Lock()
	defer o.txnLock.Unlock()
	o.mu.Lock()
	o.revision++
	revision := o.revision
	o.mu.Unlock()
	done, told, err := o.evaluate(ctx, r, revision, real)
	if err != nil {
		return nil, err
	}
	for _, w := range told {
		o.plan.Record(ctx, w)
	}
	return done, nil
}

// evaluate evaluates a transaction, or one within another. The caller holds txnLock.
func (o *overlay) evaluate(ctx context.Context, r *pb.TxnRequest, revision int64, real invokeFunc) (done *pb.TxnResponse, told []dryrun.Write, err error) {
	done = &pb.TxnResponse{Succeeded: true, Header: &pb.ResponseHeader{Revision: revision}}
	for _, c := range r.Compare {
		is, err := o.get(c.Key, c.RangeEnd, real)
		if err != nil {
			return nil, nil, err
		}
		if !compareHolds(c, is) {
			done.Succeeded = false
			break
		}
	}
	ops := r.Success
	if !done.Succeeded {
		ops = r.Failure
	}
	for _, op := range ops {
		answer, writes, err := o.apply(ctx, op, revision, real)
		if err != nil {
			return nil, nil, err
		}
		done.Responses = append(done.Responses, answer)
		told = append(told, writes...)
	}
	return done, told, nil
}

// get returns the keys of a range, the overlay included.
func (o *overlay) get(from, to []byte, real invokeFunc) ([]*mvccpb.KeyValue, error) {
	resp := &pb.RangeResponse{}
	err := o.read(&pb.RangeRequest{Key: from, RangeEnd: to}, resp, real)
	return resp.Kvs, err
}

// compareHolds reports whether a comparison holds for all keys of its range; a missing
// key compares as one of revision 0.
func compareHolds(c *pb.Compare, is []*mvccpb.KeyValue) bool {
	if len(is) == 0 {
		if c.Target == pb.Compare_VALUE { // like etcd: a missing key has no value to compare
			return false
		}
		is = []*mvccpb.KeyValue{{}}
	}
	for _, kv := range is {
		var order int
		switch c.Target {
		case pb.Compare_VERSION:
			order = cmp.Compare(kv.Version, c.GetVersion())
		case pb.Compare_CREATE:
			order = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
		case pb.Compare_MOD:
			order = cmp.Compare(kv.ModRevision, c.GetModRevision())
		case pb.Compare_VALUE:
			order = bytes.Compare(kv.Value, c.GetValue())
		case pb.Compare_LEASE:
			order = cmp.Compare(kv.Lease, c.GetLease())
		}
		var ok bool
		switch c.Result {
		case pb.Compare_EQUAL:
			ok = order == 0
		case pb.Compare_NOT_EQUAL:
			ok = order != 0
		case pb.Compare_GREATER:
			ok = order > 0
		case pb.Compare_LESS:
			ok = order < 0
		}
		if !ok {
			return false
		}
	}
	return true
}

// apply evaluates one operation of a transaction.
func (o *overlay) apply(ctx context.Context, op *pb.RequestOp, revision int64, real invokeFunc) (*pb.ResponseOp, []dryrun.Write, error) {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestTxn:
		resp, writes, err := o.evaluate(ctx, r.RequestTxn, revision, real)
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: resp}}, writes, err
	case *pb.RequestOp_RequestRange:
		resp := &pb.RangeResponse{}
		err := o.read(r.RequestRange, resp, real)
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: resp}}, nil, err
	case *pb.RequestOp_RequestPut:
		put := r.RequestPut
		is, err := o.get(put.Key, nil, real)
		if err != nil {
			return nil, nil, err
		}
		write := o.put(ctx, put, first(is), revision)
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{PrevKv: first(is)}}}, []dryrun.Write{write}, nil
	case *pb.RequestOp_RequestDeleteRange:
		is, err := o.get(r.RequestDeleteRange.Key, r.RequestDeleteRange.RangeEnd, real)
		if err != nil {
			return nil, nil, err
		}
		writes := make([]dryrun.Write, len(is))
		for i, kv := range is {
			writes[i] = o.delete(ctx, kv, revision)
		}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: int64(len(is)), PrevKvs: is}}}, writes, nil
	}
	return nil, nil, fmt.Errorf("etcd txn: %T is not supported in a dry run", op.Request)
}

func first(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}

func (o *overlay) put(ctx context.Context, r *pb.PutRequest, is *mvccpb.KeyValue, revision int64) dryrun.Write {
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, ModRevision: revision, CreateRevision: revision, Version: 1}
	change := dryrun.Change{Path: "value"}
	if is != nil {
		kv.CreateRevision, kv.Version = is.CreateRevision, is.Version+1
		if r.IgnoreValue {
			kv.Value = is.Value
		}
		if r.IgnoreLease {
			kv.Lease = is.Lease
		}
		change.From = quoteJSON(is.Value)
	}
	o.set(string(r.Key), kv, is, revision)
	w := newPlannedWrite(ctx, "put", r.Key)
	w.Request = quoteJSON(kv.Value)
	if change.To = w.Request; !bytes.Equal(change.From, change.To) {
		w.Changes = []dryrun.Change{change}
	}
	return w
}

func (o *overlay) delete(ctx context.Context, is *mvccpb.KeyValue, revision int64) dryrun.Write {
	o.set(string(is.Key), nil, is, revision)
	return newPlannedWrite(ctx, "delete", is.Key)
}

func newPlannedWrite(ctx context.Context, verb string, key []byte) dryrun.Write {
	w := dryrun.Write{Module: moduleOf(ctx), Store: "etcd", Verb: verb}
	w.Resource, w.Name = splitKey(string(key))
	return w
}

func quoteJSON(value []byte) json.RawMessage {
	text, err := json.Marshal(string(value))
	if err != nil {
		return nil // cannot happen for a string
	}
	return text
}

// set records the new state of a key, nil for a deleted one.
func (o *overlay) set(key string, kv, is *mvccpb.KeyValue, revision int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	base := int64(0)
	if before, planned := o.keys[key]; planned {
		base = before.base
	} else if is != nil {
		base = is.ModRevision
	}
	o.keys[key] = plannedKey{base: base, kv: kv, at: revision}
	o.changed = append(o.changed, key)
	close(o.extended)
	o.extended = make(chan struct{})
}

// position returns the position of the overlay's end, where a new watch starts.
func (o *overlay) position() int {
	if o == nil {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.changed)
}

// changedSince returns a channel that is closed when there are changes after a position;
// nil in a real run.
func (o *overlay) changedSince(position int) <-chan struct{} {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if position < len(o.changed) {
		ready := make(chan struct{})
		close(ready)
		return ready
	}
	return o.extended
}

// changesSince returns the changes after a position under a prefix, in their latest
// state, and the position after them.
func (o *overlay) changesSince(position int, prefix string) (changes []Event, end int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range o.changed[position:] {
		k, planned := o.keys[key]
		switch {
		case !planned || !strings.HasPrefix(key, prefix):
		case k.kv == nil:
			changes = append(changes, Event{Delete, Entry{Key: key, ModRevision: k.at}})
		default:
			changes = append(changes, Event{Upsert, entryOf(k.kv)})
		}
	}
	return changes, len(o.changed)
}

// overrides reports whether the overlay has a key in place of etcd's state of this
// revision.
func (o *overlay) overrides(key string, revision int64) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropIfStale(key, revision)
	_, planned := o.keys[key]
	return planned
}

// load reports to a dry run what is in progress.
func (c *conn) load() (load dryrun.Load) {
	select {
	case <-c.ctx.Done():
		return load
	case <-c.connected:
	default:
		load.Busy = append(load.Busy, "the connection to etcd")
	}
	if n := c.interceptor.overlay.inFlight.Load(); n > 0 {
		load.Busy = append(load.Busy, fmt.Sprintf("requests to etcd: %d", n))
	}
	return load
}
