// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"path"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
)

type clientKey struct{}

// withClient records the module of a request in its context, for the interceptor.
func withClient(ctx context.Context, c *client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// moduleOf returns the module of a request; requests of the connection itself belong
// to the module kvstore.
func moduleOf(ctx context.Context) string {
	if c, ok := ctx.Value(clientKey{}).(*client); ok {
		return c.module
	}
	return "kvstore"
}

// audit records a request in the write history, once per key that it changes.
func (i *interceptor) audit(ctx context.Context, method string, req, reply any, err error, took time.Duration) {
	if i.history == nil {
		return
	}
	w := explain.Write{Module: moduleOf(ctx), Result: "ok", Took: took, Cause: k8s.CauseOf(ctx)}
	if err != nil {
		w.Result = err.Error()
	}
	switch r := req.(type) {
	case *pb.PutRequest:
		i.auditKey(w, "put", r.Key, reply)
	case *pb.DeleteRangeRequest:
		i.auditKey(w, "delete", r.Key, reply)
	case *pb.TxnRequest:
		resp, _ := reply.(*pb.TxnResponse)
		i.auditTxn(w, r, resp)
	case *pb.LeaseGrantRequest:
		w.Verb, w.Resource = "grant", "leases"
		if resp, ok := reply.(*pb.LeaseGrantResponse); ok && err == nil {
			w.Name = LeaseID(resp.ID).String()
		}
		i.history.RecordWrite(w)
	default:
		w.Verb = path.Base(method)
		i.history.RecordWrite(w)
	}
}

// auditTxn records the writes of a transaction, and of those within it. Only the outermost response has a revision.
func (i *interceptor) auditTxn(w explain.Write, r *pb.TxnRequest, resp *pb.TxnResponse) {
	if w.Result == "ok" && !resp.GetSucceeded() {
		w.Result = "not done: a guard failed"
	}
	for n, op := range r.Success {
		if nested := op.GetRequestTxn(); nested != nil {
			var answer *pb.TxnResponse
			if all := resp.GetResponses(); resp.GetSucceeded() && n < len(all) {
				answer = all[n].GetResponseTxn()
				answer.Header = resp.Header
			}
			i.auditTxn(w, nested, answer)
		} else if key := changedKey(op); key != nil {
			i.auditKey(w, "txn", key, resp)
		}
	}
}

// auditKey records a write to a key, with the revision of a successful one.
func (i *interceptor) auditKey(w explain.Write, verb string, key []byte, reply any) {
	w.Verb = verb
	w.Resource, w.Name = splitKey(string(key))
	w.Cause = causeOfKey(w.Cause, string(key))
	if answer, ok := reply.(interface{ GetHeader() *pb.ResponseHeader }); ok && w.Result == "ok" {
		w.Revision = strconv.FormatInt(answer.GetHeader().GetRevision(), 10)
	}
	i.history.RecordWrite(w)
}

// causeOfKey reduces the cause of many writes to the trigger that is the key itself, if there is one.
func causeOfKey(c *k8s.Cause, key string) *k8s.Cause {
	if c == nil || len(c.Triggers) < 2 {
		return c
	}
	for _, t := range c.Triggers {
		if t.Name == key {
			return &k8s.Cause{Rule: c.Rule, Triggers: []k8s.Trigger{t}, Parent: c.Parent}
		}
	}
	return c
}

// changedKey returns the key that an operation of a transaction changes, nil for a
// read.
func changedKey(op *pb.RequestOp) []byte {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		return r.RequestPut.Key
	case *pb.RequestOp_RequestDeleteRange:
		return r.RequestDeleteRange.Key
	}
	return nil
}

// splitKey splits a key into the prefix of its kind and its name.
func splitKey(key string) (prefix, name string) {
	segments := 2 // cilium/cluster-config
	if strings.HasPrefix(key, "cilium/state/") {
		segments = 4 // cilium/state/services/v1
	}
	at := -1
	for range segments {
		next := strings.IndexByte(key[at+1:], '/')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return key[:max(at, 0)], key[at+1:]
}
