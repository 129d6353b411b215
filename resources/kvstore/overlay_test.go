// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// KV-O8, in a dry run: transactions in a transaction are planned by their own guards.
func TestOverlayOfNestedTransactions(t *testing.T) {
	real := func(_ string, req, reply any) error {
		if r := req.(*pb.RangeRequest); string(r.Key) == "a" || string(r.Key) == "b" {
			reply.(*pb.RangeResponse).Kvs = []*mvccpb.KeyValue{{Key: r.Key, ModRevision: 7}}
		}
		return nil
	}
	removal := func(key string, revision int64) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
			Compare: []*pb.Compare{{Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, Key: []byte(key), TargetUnion: &pb.Compare_ModRevision{ModRevision: revision}}},
			Success: []*pb.RequestOp{requestOp(&pb.DeleteRangeRequest{Key: []byte(key)})},
		}}}
	}
	group := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: []*pb.RequestOp{removal("a", 7), removal("b", 8)}}}}
	o := &overlay{keys: map[string]plannedKey{}, extended: make(chan struct{})}
	done, writes, err := o.evaluate(withCause(t), &pb.TxnRequest{Success: []*pb.RequestOp{group}}, firstPlannedRevision, real)
	check(t, err)
	each := done.Responses[0].GetResponseTxn().Responses
	if len(each) != 2 || !each[0].GetResponseTxn().Succeeded || each[1].GetResponseTxn().Succeeded {
		t.Errorf("the answer is %v", done)
	}
	if len(writes) != 1 || writes[0].Name != "a" || writes[0].Verb != "delete" {
		t.Errorf("planned are %v", writes)
	}
	if k, planned := o.keys["a"]; !planned || k.kv != nil || len(o.keys) != 1 {
		t.Errorf("the overlay has %v", o.keys)
	}
}
