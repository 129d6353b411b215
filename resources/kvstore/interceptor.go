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
	"github.com/skep-operator/skep/resources/leading"
)

// interceptor is a pair of gRPC interceptors. Every attempt of every request passes
// it, including those that etcd's client makes by itself.
type interceptor struct {
	fence          Fence         // nil: reads only
	attemptTimeout time.Duration // of one attempt
	strictCause    bool          // a write without a cause fails
	onMissingCause func()
	history        *explain.History // nil: writes are not recorded
	restores       *restoreDetector
	overlay        *overlay // nil: a real run
}

// readMethods change nothing. All other methods need an open fence.
var readMethods = []string{
	"/etcdserverpb.KV/Range",
	"/etcdserverpb.Lease/LeaseTimeToLive", "/etcdserverpb.Lease/LeaseLeases",
	"/etcdserverpb.Maintenance/Status", "/etcdserverpb.Maintenance/Hash", "/etcdserverpb.Maintenance/HashKV",
	"/etcdserverpb.Cluster/MemberList", "/etcdserverpb.Auth/Authenticate",
}

// unary intercepts requests.
func (i *interceptor) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if slices.Contains(readMethods, method) {
		return i.read(ctx, method, req, reply, cc, invoke, opts...)
	}
	stop, err := i.authorize(&ctx, path.Base(method))
	if err != nil {
		return err
	}
	defer stop()
	began := time.Now()
	err = i.write(ctx, method, req, reply, cc, invoke, opts...)
	i.audit(ctx, method, req, reply, err, time.Since(began))
	return err
}

// write sends a write; a dry run applies it to its overlay instead.
func (i *interceptor) write(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if i.overlay == nil {
		return i.send(ctx, method, req, reply, cc, invoke, opts...)
	}
	return i.read(ctx, method, req, reply, cc, invoke, opts...)
}

// read sends a read; a dry run adds its own writes to the answer.
func (i *interceptor) read(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if i.overlay == nil {
		return i.send(ctx, method, req, reply, cc, invoke, opts...)
	}
	return i.overlay.handle(ctx, method, req, reply, func(method string, req, reply any) error {
		return i.send(ctx, method, req, reply, cc, invoke, opts...)
	})
}

// stream intercepts streams: a dry run keeps no lease alive.
func (i *interceptor) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if i.overlay != nil && method != "/etcdserverpb.Watch/Watch" {
		return nil, fmt.Errorf("etcd %s: not available in a dry run", path.Base(method))
	}
	return open(ctx, desc, cc, method, opts...)
}

func (i *interceptor) send(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	began := i.restores.latestRevision()
	err := i.invokeWithTimeout(ctx, method, req, reply, cc, invoke, opts...)
	if err != nil && i.fence != nil && i.fence.Check() != nil {
		return fmt.Errorf("etcd %s: %w (%w)", path.Base(method), leading.ErrFenced, err)
	}
	if answer, ok := reply.(interface{ GetHeader() *pb.ResponseHeader }); ok && err == nil {
		i.restores.observe(answer.GetHeader(), began, linearizable(req))
	}
	return err
}

// authorize permits a write if the fence is open, and bounds ctx by the fence.
func (i *interceptor) authorize(ctx *context.Context, what string) (stop func(), err error) {
	if i.fence == nil {
		return nil, fmt.Errorf("etcd %s: %w", what, k8s.ErrReadOnly)
	}
	if k8s.CauseOf(*ctx) == nil {
		i.onMissingCause()
		if i.strictCause {
			return nil, fmt.Errorf("etcd %s: %w", what, k8s.ErrNoCause)
		}
	}
	if err := i.fence.Check(); err != nil {
		return nil, fmt.Errorf("etcd %s: %w", what, err)
	}
	bounded, cancel := context.WithCancelCause(*ctx)
	unhook := context.AfterFunc(i.fence.Context(), func() { cancel(leading.ErrFenced) })
	*ctx = bounded
	return func() { unhook(); cancel(nil) }, nil
}

// linearizable reports whether the answer to a request has etcd's latest revision.
func linearizable(req any) bool {
	switch r := req.(type) {
	case *pb.RangeRequest:
		return !r.Serializable
	case *pb.PutRequest, *pb.DeleteRangeRequest, *pb.TxnRequest:
		return true
	}
	return false
}
