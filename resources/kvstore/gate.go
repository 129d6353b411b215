// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
)

// gate stands before the connection: every attempt of every request passes it,
// whatever made the request.
type gate struct {
	fence    Fence         // nil: reads only
	limit    time.Duration // of one attempt
	strict   bool          // a write without a cause fails
	uncaused func()
	book     *explain.Book // nil: nobody wants to know
	data     *lineage
	overlay  *overlay // nil: a real run
}

// reads are the requests that change nothing. Whatever is not named here needs
// the fence.
var reads = []string{
	"/etcdserverpb.KV/Range",
	"/etcdserverpb.Lease/LeaseTimeToLive", "/etcdserverpb.Lease/LeaseLeases",
	"/etcdserverpb.Maintenance/Status", "/etcdserverpb.Maintenance/Hash", "/etcdserverpb.Maintenance/HashKV",
	"/etcdserverpb.Cluster/MemberList", "/etcdserverpb.Auth/Authenticate",
}

// unary is a gRPC interceptor.
func (g *gate) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if slices.Contains(reads, method) {
		return g.read(ctx, method, req, reply, cc, invoke, opts...)
	}
	stop, err := g.admit(&ctx, path.Base(method))
	if err != nil {
		return err
	}
	defer stop()
	began := time.Now()
	err = g.write(ctx, method, req, reply, cc, invoke, opts...)
	g.note(ctx, method, req, reply, err, time.Since(began))
	return err
}

// write sends a write, which a plan keeps to itself.
func (g *gate) write(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if g.overlay == nil {
		return g.send(ctx, method, req, reply, cc, invoke, opts...)
	}
	return g.read(ctx, method, req, reply, cc, invoke, opts...)
}

// read sends a request that changes nothing. A plan reads its own writes.
func (g *gate) read(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if g.overlay == nil {
		return g.send(ctx, method, req, reply, cc, invoke, opts...)
	}
	return g.overlay.call(ctx, method, req, reply, func(method string, req, reply any) error {
		return g.send(ctx, method, req, reply, cc, invoke, opts...)
	})
}

// stream is a gRPC interceptor: a plan keeps no lease alive.
func (g *gate) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if g.overlay != nil && method != "/etcdserverpb.Watch/Watch" {
		return nil, fmt.Errorf("etcd %s: a plan keeps nothing alive", path.Base(method))
	}
	return open(ctx, desc, cc, method, opts...)
}

func (g *gate) send(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	began := g.data.newest()
	err := g.attempt(ctx, method, req, reply, cc, invoke, opts...)
	if err != nil && g.fence != nil && g.fence.Check() != nil {
		return fmt.Errorf("etcd %s: %w (%w)", path.Base(method), k8s.ErrFenced, err)
	}
	if answer, ok := reply.(interface{ GetHeader() *pb.ResponseHeader }); ok && err == nil {
		g.data.saw(answer.GetHeader(), began, linearizable(req))
	}
	return err
}

// admit lets a write through, bounded by the fence.
func (g *gate) admit(ctx *context.Context, what string) (stop func(), err error) {
	if g.fence == nil {
		return nil, fmt.Errorf("etcd %s: %w", what, k8s.ErrReadOnly)
	}
	if k8s.CauseOf(*ctx) == nil {
		g.uncaused()
		if g.strict {
			return nil, fmt.Errorf("etcd %s: %w", what, k8s.ErrNoCause)
		}
	}
	if err := g.fence.Check(); err != nil {
		return nil, fmt.Errorf("etcd %s: %w", what, err)
	}
	bounded, cancel := context.WithCancelCause(*ctx)
	unhook := context.AfterFunc(g.fence.Context(), func() { cancel(k8s.ErrFenced) })
	*ctx = bounded
	return func() { unhook(); cancel(nil) }, nil
}

// linearizable reports whether the answer to a request has the newest revision.
func linearizable(req any) bool {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return !r.Serializable
	case *pb.PutRequest, *pb.DeleteRangeRequest, *pb.TxnRequest:
		return true
	}
	return false
}
