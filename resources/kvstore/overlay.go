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

	"github.com/skep-operator/skep/resources/plan"
)

// overlay is what a plan keeps from etcd: keys as they would be after the writes
// planned so far, and leases of its own. Reads and watches see it. A key that
// somebody else wrote after the plan read it is etcd's again.
//
// A nil overlay is a real run.
type overlay struct {
	plan  *plan.Plan
	calls atomic.Int64 // under way
	alone sync.Mutex   // held by a transaction

	mu       sync.Mutex
	revision int64 // given last
	lease    int64
	keys     map[string]plannedKey
	changed  []string      // keys, in the order of their writes
	grown    chan struct{} // closed and replaced with each of them
	ttls     map[int64]int64
}

// plannedKey is a key of the plan.
type plannedKey struct {
	base int64            // revision of etcd's state that it was made of, 0 for none
	kv   *mvccpb.KeyValue // nil: deleted
	at   int64            // revision of the plan
}

// firstPlanned is where revisions and leases of a plan begin: beyond all of
// etcd's.
const firstPlanned = 1 << 62

func newOverlay(p *plan.Plan) *overlay {
	if p == nil {
		return nil
	}
	return &overlay{
		plan: p, revision: firstPlanned, lease: firstPlanned,
		keys: map[string]plannedKey{}, grown: make(chan struct{}), ttls: map[int64]int64{},
	}
}

// ask makes a real request that changes nothing.
type ask func(method string, req, reply any) error

// call answers a request. real is the way to etcd, for reads alone.
func (o *overlay) call(ctx context.Context, method string, req, reply any, real ask) error {
	o.plan.Moved()
	o.calls.Add(1)
	defer o.calls.Add(-1)
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
	if slices.Contains(reads, method) {
		return real(method, req, reply)
	}
	return fmt.Errorf("etcd %s: a plan cannot tell what this would do", path.Base(method))
}

func requestOp(r any) *pb.RequestOp {
	if put, ok := r.(*pb.PutRequest); ok {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r.(*pb.DeleteRangeRequest)}}
}

// read reads a range of keys, page by page where a page turns out to be empty.
func (o *overlay) read(r *pb.RangeRequest, reply *pb.RangeResponse, real ask) error {
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

// merge puts planned keys into a page of etcd's, which ends with the key last
// where others follow.
func (o *overlay) merge(r *pb.RangeRequest, kvs []*mvccpb.KeyValue, last string) []*mvccpb.KeyValue {
	o.mu.Lock()
	defer o.mu.Unlock()
	merged := map[string]*mvccpb.KeyValue{}
	for _, kv := range kvs {
		o.settle(string(kv.Key), kv.ModRevision)
		merged[string(kv.Key)] = kv
	}
	for key, k := range o.keys {
		switch {
		case !within(key, r.Key, r.RangeEnd) || last != "" && key > last:
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

// settle gives a key back to etcd if somebody else wrote it after the plan read
// it. With the lock held.
func (o *overlay) settle(key string, revision int64) {
	if k, planned := o.keys[key]; planned && revision > k.base {
		delete(o.keys, key)
	}
}

// within reports whether a key is in a range as etcd has it.
func within(key string, from, to []byte) bool {
	switch {
	case len(to) == 0:
		return key == string(from)
	case len(to) == 1 && to[0] == 0:
		return key >= string(from)
	}
	return key >= string(from) && key < string(to)
}

// commit evaluates a transaction.
func (o *overlay) commit(ctx context.Context, r *pb.TxnRequest, real ask) (*pb.TxnResponse, error) {
	o.alone.Lock()
	defer o.alone.Unlock()
	done := &pb.TxnResponse{Succeeded: true}
	for _, c := range r.Compare {
		is, err := o.get(c.Key, c.RangeEnd, real)
		if err != nil {
			return nil, err
		}
		if !satisfied(c, is) {
			done.Succeeded = false
			break
		}
	}
	ops := r.Success
	if !done.Succeeded {
		ops = r.Failure
	}
	var told []plan.Write
	o.mu.Lock()
	o.revision++
	revision := o.revision
	o.mu.Unlock()
	for _, op := range ops {
		answer, writes, err := o.do(ctx, op, revision, real)
		if err != nil {
			return nil, err
		}
		done.Responses = append(done.Responses, answer)
		told = append(told, writes...)
	}
	done.Header = &pb.ResponseHeader{Revision: revision}
	for _, w := range told {
		o.plan.Record(ctx, w)
	}
	return done, nil
}

// get are the keys of a range as they are planned.
func (o *overlay) get(from, to []byte, real ask) ([]*mvccpb.KeyValue, error) {
	resp := &pb.RangeResponse{}
	err := o.read(&pb.RangeRequest{Key: from, RangeEnd: to}, resp, real)
	return resp.Kvs, err
}

// satisfied reports whether a comparison holds for all keys of its range, or for a
// key that is not there.
func satisfied(c *pb.Compare, is []*mvccpb.KeyValue) bool {
	if len(is) == 0 {
		if c.Target == pb.Compare_VALUE { // as etcd has it: there is no value to compare with
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

// do makes one operation of a transaction.
func (o *overlay) do(ctx context.Context, op *pb.RequestOp, revision int64, real ask) (*pb.ResponseOp, []plan.Write, error) {
	switch r := op.Request.(type) {
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
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{PrevKv: first(is)}}}, []plan.Write{write}, nil
	case *pb.RequestOp_RequestDeleteRange:
		is, err := o.get(r.RequestDeleteRange.Key, r.RequestDeleteRange.RangeEnd, real)
		if err != nil {
			return nil, nil, err
		}
		writes := make([]plan.Write, len(is))
		for i, kv := range is {
			writes[i] = o.remove(ctx, kv, revision)
		}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: int64(len(is)), PrevKvs: is}}}, writes, nil
	}
	return nil, nil, fmt.Errorf("etcd txn: a plan cannot tell what %T would do", op.Request)
}

func first(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}

func (o *overlay) put(ctx context.Context, r *pb.PutRequest, is *mvccpb.KeyValue, revision int64) plan.Write {
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, ModRevision: revision, CreateRevision: revision, Version: 1}
	change := plan.Change{Path: "value"}
	if is != nil {
		kv.CreateRevision, kv.Version = is.CreateRevision, is.Version+1
		if r.IgnoreValue {
			kv.Value = is.Value
		}
		if r.IgnoreLease {
			kv.Lease = is.Lease
		}
		change.From = quoted(is.Value)
	}
	o.set(string(r.Key), kv, is, revision)
	w := newPlanned(ctx, "put", r.Key)
	w.Request = quoted(kv.Value)
	if change.To = w.Request; !bytes.Equal(change.From, change.To) {
		w.Changes = []plan.Change{change}
	}
	return w
}

func (o *overlay) remove(ctx context.Context, is *mvccpb.KeyValue, revision int64) plan.Write {
	o.set(string(is.Key), nil, is, revision)
	return newPlanned(ctx, "delete", is.Key)
}

func newPlanned(ctx context.Context, verb string, key []byte) plan.Write {
	w := plan.Write{Module: moduleOf(ctx), Store: "etcd", Verb: verb}
	w.Resource, w.Name = splitKey(string(key))
	return w
}

func quoted(value []byte) json.RawMessage {
	text, err := json.Marshal(string(value))
	if err != nil {
		return nil // a string always can be
	}
	return text
}

// set takes over the new state of a key, nil for one that is deleted.
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
	close(o.grown)
	o.grown = make(chan struct{})
}

// position is where a watch that begins now starts to follow.
func (o *overlay) position() int {
	if o == nil {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.changed)
}

// more is closed when there is something behind a position, nil in a real run:
// never.
func (o *overlay) more(position int) <-chan struct{} {
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
	return o.grown
}

// after are the changes behind a position under a prefix, in their newest state,
// and the position behind them.
func (o *overlay) after(position int, prefix string) (changes []Event, end int) {
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

// hides reports whether the plan has a state of a key that is shown in place of
// the one that etcd tells, of this revision.
func (o *overlay) hides(key string, revision int64) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settle(key, revision)
	_, planned := o.keys[key]
	return planned
}

// load is what is asked of etcd, for a plan.
func (c *conn) load() (load plan.Load) {
	select {
	case <-c.ctx.Done():
		return load
	case <-c.connected:
	default:
		load.Busy = append(load.Busy, "the connection to etcd")
	}
	if n := c.gate.overlay.calls.Load(); n > 0 {
		load.Busy = append(load.Busy, fmt.Sprintf("requests to etcd: %d", n))
	}
	return load
}
