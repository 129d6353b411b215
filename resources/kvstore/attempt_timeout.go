// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
)

// errUnanswered means that a write was sent to a member and not answered in time:
// it may have been applied, or may still be.
var errUnanswered = errors.New("no answer within the timeout, the write may have been applied")

// retriedByClient are the requests other than reads that etcd's client may repeat:
// an unused lease expires with its TTL.
var retriedByClient = []string{"/etcdserverpb.Lease/LeaseGrant"}

// invokeWithTimeout makes one attempt with a timeout of its own: a member that hangs
// never answers, and etcd gives up a write forwarded to a lost leader only after seven
// seconds.
func (i *interceptor) invokeWithTimeout(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if isUnpagedRange(req) {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	limited, cancel := context.WithTimeout(ctx, i.attemptTimeout)
	defer cancel()
	var member peer.Peer // empty while there is no connection
	err := invoke(limited, method, req, reply, cc, append(slices.Clip(opts), grpc.Peer(&member))...)
	if grpcstatus.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil {
		return err
	}
	if member.Addr == nil || slices.Contains(readMethods, method) || slices.Contains(retriedByClient, method) {
		return err // retried by etcd's client
	}
	return fmt.Errorf("etcd %s at %s: %w", path.Base(method), member.Addr, errUnanswered)
}

// isUnpagedRange reports whether a request lists a range without pages. Its duration
// has no useful bound.
func isUnpagedRange(req any) bool {
	r, ok := req.(*pb.RangeRequest)
	return ok && len(r.RangeEnd) > 0 && r.Limit == 0
}

// retryUnanswered repeats an idempotent operation until it is answered or ctx ends.
func retryUnanswered(ctx context.Context, f func() error) error {
	for {
		if err := f(); !errors.Is(err, errUnanswered) || ctx.Err() != nil {
			return err
		}
	}
}
