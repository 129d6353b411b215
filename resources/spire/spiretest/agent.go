// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spiretest

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Agent is a SPIRE agent, which takes every client for the same workload.
type Agent struct {
	// Socket is the path of the Workload API.
	Socket string

	workload.UnimplementedSpiffeWorkloadAPIServer
	t         testing.TB
	authority *authority
	server    *grpc.Server // nil: it does not run

	mu       sync.Mutex
	knows    []string      // paths of the workload's SPIFFE IDs
	lifetime time.Duration // of certificates
	changed  chan struct{} // closed and replaced
}

func newAgent(t testing.TB, a *authority) *Agent {
	dir, err := os.MkdirTemp("", "spire") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	g := &Agent{Socket: filepath.Join(dir, "agent.sock"), t: t, authority: a, knows: []string{OperatorPath}, lifetime: lifetime, changed: make(chan struct{})}
	t.Cleanup(func() {
		g.Stop()
		_ = os.RemoveAll(dir)
	})
	return g
}

// Start has the agent serve.
func (g *Agent) Start() {
	g.t.Helper()
	listener, err := net.Listen("unix", g.Socket)
	if err != nil {
		g.t.Fatal(err)
	}
	g.server = grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(g.server, g)
	go func(s *grpc.Server) { _ = s.Serve(listener) }(g.server)
}

// Stop ends the agent, and removes the socket.
func (g *Agent) Stop() {
	if g.server != nil {
		g.server.Stop()
		g.server = nil
	}
}

// Knows sets the paths of the SPIFFE IDs that the agent has certificates of, and sends new certificates.
func (g *Agent) Knows(paths ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.knows = paths
	close(g.changed)
	g.changed = make(chan struct{})
}

// Rotate sends new certificates.
func (g *Agent) Rotate() {
	g.mu.Lock()
	knows := g.knows
	g.mu.Unlock()
	g.Knows(knows...)
}

// SetLifetime sets how long certificates last that the agent sends from now on. They end at full seconds.
func (g *Agent) SetLifetime(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lifetime = d
}

// FetchX509SVID implements the Workload API.
func (g *Agent) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	if header, _ := metadata.FromIncomingContext(stream.Context()); len(header.Get("workload.spiffe.io")) != 1 {
		return status.Error(codes.InvalidArgument, "security header missing from request")
	}
	for {
		g.mu.Lock()
		knows, changed, lasts := g.knows, g.changed, g.lifetime
		g.mu.Unlock()
		if len(knows) == 0 {
			return status.Error(codes.PermissionDenied, "no identity issued")
		}
		answer := &workload.X509SVIDResponse{}
		for _, path := range knows {
			answer.Svids = append(answer.Svids, g.svid(path, lasts))
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (g *Agent) svid(path string, lasts time.Duration) *workload.X509SVID {
	id := spiffeid.RequireFromPath(g.authority.domain, path)
	issued := g.authority.issue(id, lasts)
	key, err := x509.MarshalPKCS8PrivateKey(issued.PrivateKey)
	if err != nil {
		g.t.Error(err)
	}
	var bundle []byte
	for _, root := range g.authority.roots() {
		bundle = append(bundle, root.Raw...)
	}
	return &workload.X509SVID{SpiffeId: id.String(), X509Svid: issued.Certificates[0].Raw, X509SvidKey: key, Bundle: bundle}
}
