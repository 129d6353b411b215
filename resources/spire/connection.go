// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/stats"

	"github.com/skep-operator/skep/resources/k8s"
)

// Connection is the connection to the SPIRE server. It is safe for concurrent use: duties share it, and one whose call fails
// has the next attempt of each connect again, without ending the calls of others.
type Connection struct {
	address  string
	timeout  time.Duration
	workload *workload
	pacer    *pacer
	client   k8s.Client
	log      *slog.Logger

	mu         sync.Mutex
	current    *link // nil: there is none
	made       int   // links
	closed     bool
	unresolved bool // the Service was not read the last time
}

// link is a connection that attempts use. It is closed when it is not the current one any more, and no attempt uses it.
type link struct {
	conn   *grpc.ClientConn
	number int
	users  int
	dialed *dialed
}

// generation tells connections apart: those of links, and those that gRPC makes anew within one, as servers end each after a while. Behind another
// one may be another server.
type generation struct{ link, connection int64 }

func (l *link) generation() generation { return generation{int64(l.number), l.dialed.begun.Load()} }

// dialed counts the connections of a link. It is a stats.Handler.
type dialed struct{ begun atomic.Int64 }

func (*dialed) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*dialed) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*dialed) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (d *dialed) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, is := s.(*stats.ConnBegin); is {
		d.begun.Add(1)
	}
}

// NewConnection returns a connection that does not exist yet.
func NewConnection(c Config, client k8s.Client, log *slog.Logger) (*Connection, error) {
	w, err := newWorkload(c)
	return &Connection{
		address: c.MeshAuthSPIREServerAddress, timeout: c.MeshAuthSPIREServerConnectionTimeout, workload: w, pacer: newPacer(usualPatience), client: client, log: log,
	}, err
}

// Run watches the operator's own certificate until ctx ends. Nothing connects without it.
func (c *Connection) Run(ctx context.Context) error { return c.workload.run(ctx) }

// Close ends the connection, for good.
func (c *Connection) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.drop(c.current)
}

// acquire returns the connection for an attempt, which releases it. It is made by the first call.
func (c *Connection) acquire(ctx context.Context) (*link, error) {
	if l := c.use(nil); l != nil {
		return l, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.workload.await(ctx); err != nil {
		return nil, fmt.Errorf("unable to connect to SPIRE server %s: %w", c.address, err)
	}
	made := &dialed{}
	conn, err := grpc.NewClient("passthrough:///"+c.target(ctx), grpc.WithTransportCredentials(credentials.NewTLS(c.workload.tls())), grpc.WithStatsHandler(made))
	if err != nil {
		return nil, fmt.Errorf("unable to connect to SPIRE server %s: %w", c.address, err)
	}
	return c.use(&link{conn: conn, dialed: made}), nil
}

// use counts another user of the current connection, which fresh becomes if there is none.
func (c *Connection) use(fresh *link) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.current
	switch {
	case l == nil && fresh == nil:
		return nil
	case l == nil:
		l = fresh
		c.made++
		l.number = c.made
		if !c.closed {
			c.current = l
		}
	case fresh != nil:
		_ = fresh.conn.Close() // another attempt was faster
	}
	l.users++
	return l
}

// release ends the use of a connection by an attempt. After a failure the next attempt makes another one, which resolves the
// address again, since the Service may be another one.
func (c *Connection) release(l *link, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.users--
	if failed || c.current != l {
		c.drop(l)
	}
}

// drop has a connection not be the current one, and closes it if no attempt uses it. The caller has the lock.
func (c *Connection) drop(l *link) {
	if c.current == l {
		c.current = nil
	}
	if l != nil && l.users == 0 {
		_ = l.conn.Close()
	}
}

// target is the address with the IP address of the Service that it names, since the resolver of the host may not know names
// of Services.
func (c *Connection) target(ctx context.Context) string {
	namespace, name, port, isService := parseService(c.address)
	if !isService {
		return c.address
	}
	found, err := c.client.Get(ctx, k8s.Ref{Resource: services, Namespace: namespace, Name: name})
	if c.markUnresolved(err != nil) {
		c.log.Warn("cannot read the Service of the SPIRE server, its name is resolved by the host", "service", namespace+"/"+name, "error", err)
	}
	if err != nil {
		return c.address
	}
	ip, _, _ := unstructured.NestedString(found.Object, "spec", "clusterIP")
	if ip == "" || ip == corev1.ClusterIPNone {
		return c.address
	}
	return net.JoinHostPort(ip, port)
}

// markUnresolved records whether the Service was read, and reports whether it was not for the first time.
func (c *Connection) markUnresolved(unresolved bool) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = unresolved && !c.unresolved
	c.unresolved = unresolved
	return first
}

// parseService is the Service that an address names: service.namespace.svc, with or without the cluster's domain.
func parseService(address string) (namespace, name, port string, isService bool) {
	host, port, err := net.SplitHostPort(address)
	parts := strings.Split(host, ".")
	if err != nil || len(parts) < 3 || !strings.HasPrefix(parts[2], "svc") {
		return "", "", "", false
	}
	return parts[1], parts[0], port, true
}
