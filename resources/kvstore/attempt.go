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

// errUnanswered is how an attempt at a write ends that reached a member and had no
// answer in time: it may have been done, and it may yet be.
var errUnanswered = errors.New("no answer in time, it may have been done all the same")

// repeated are the requests other than reads that etcd's client may send again by
// itself: a lease that nobody knows of goes when its time is over.
var repeated = []string{"/etcdserverpb.Lease/LeaseGrant"}

// attempt makes one attempt. It is cut where others would have an answer: a member
// that stands still gives none, and a write that was on its way to a leader that is no
// more is given up by etcd after seven seconds only.
func (g *gate) attempt(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if inOnePiece(req) {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	limited, cancel := context.WithTimeout(ctx, g.limit)
	defer cancel()
	var member peer.Peer // empty while there is no connection
	err := invoke(limited, method, req, reply, cc, append(slices.Clip(opts), grpc.Peer(&member))...)
	if grpcstatus.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil {
		return err
	}
	if member.Addr == nil || slices.Contains(reads, method) || slices.Contains(repeated, method) {
		return err // etcd's client makes the next attempt
	}
	return fmt.Errorf("etcd %s at %s: %w", path.Base(method), member.Addr, errUnanswered)
}

// inOnePiece reports whether a request is for a listing without pages, which takes as
// long as it takes.
func inOnePiece(req any) bool {
	r, ok := req.(*pb.RangeRequest)
	return ok && len(r.RangeEnd) > 0 && r.Limit == 0
}

// untilAnswered repeats what may be done more than once, for as long as it has no
// answer.
func untilAnswered(ctx context.Context, f func() error) error {
	for {
		if err := f(); !errors.Is(err, errUnanswered) || ctx.Err() != nil {
			return err
		}
	}
}
