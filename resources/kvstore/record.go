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

// withClient tells the gate whose requests those of a context are.
func withClient(ctx context.Context, c *client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// moduleOf is the module that a request is made for. What nobody asked for is
// the connection's own.
func moduleOf(ctx context.Context) string {
	if c, ok := ctx.Value(clientKey{}).(*client); ok {
		return c.module
	}
	return "kvstore"
}

// note writes a request that left, or tried to, into the book: each key that it
// is to change.
func (g *gate) note(ctx context.Context, method string, req, reply any, err error, took time.Duration) {
	if g.book == nil {
		return
	}
	w := explain.Write{Module: moduleOf(ctx), Result: "ok", Took: took, Cause: k8s.CauseOf(ctx)}
	if err != nil {
		w.Result = err.Error()
	}
	switch r := req.(type) {
	case *pb.PutRequest:
		g.noteKey(w, "put", r.Key, reply)
	case *pb.DeleteRangeRequest:
		g.noteKey(w, "delete", r.Key, reply)
	case *pb.TxnRequest:
		if resp, ok := reply.(*pb.TxnResponse); ok && err == nil && !resp.Succeeded {
			w.Result, reply = "not done: a guard does not hold", nil
		}
		for _, op := range r.Success {
			if key := changes(op); key != nil {
				g.noteKey(w, "txn", key, reply)
			}
		}
	case *pb.LeaseGrantRequest:
		w.Verb, w.Resource = "grant", "leases"
		if resp, ok := reply.(*pb.LeaseGrantResponse); ok && err == nil {
			w.Name = LeaseID(resp.ID).String()
		}
		g.book.Wrote(w)
	default:
		w.Verb = path.Base(method)
		g.book.Wrote(w)
	}
}

// noteKey notes a write to a key. A reply of one that was done has its revision.
func (g *gate) noteKey(w explain.Write, verb string, key []byte, reply any) {
	w.Verb = verb
	w.Resource, w.Name = splitKey(string(key))
	if answer, ok := reply.(interface{ GetHeader() *pb.ResponseHeader }); ok && w.Result == "ok" {
		w.Revision = strconv.FormatInt(answer.GetHeader().GetRevision(), 10)
	}
	g.book.Wrote(w)
}

// changes is the key that an operation of a transaction writes or deletes, nil
// for a read.
func changes(op *pb.RequestOp) []byte {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		return r.RequestPut.Key
	case *pb.RequestOp_RequestDeleteRange:
		return r.RequestDeleteRange.Key
	}
	return nil
}

// splitKey cuts a key in two: the prefix of all keys of its kind, and its name.
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
