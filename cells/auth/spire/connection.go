// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/skep-operator/skep/cells/auth/spire/internal/entryapi"
	"github.com/skep-operator/skep/resources/k8s"
)

// connection is the connection to the SPIRE server. It is of the goroutine of the work queue.
type connection struct {
	address  string
	timeout  time.Duration
	workload *workload
	client   k8s.Client
	log      *slog.Logger

	conn       *grpc.ClientConn // nil: there is none
	unresolved bool             // the Service was not read the last time
}

func newConnection(c Config, w *workload, client k8s.Client, log *slog.Logger) *connection {
	return &connection{address: c.MeshAuthSPIREServerAddress, timeout: c.MeshAuthSPIREServerConnectionTimeout, workload: w, client: client, log: log}
}

// open returns a client of the server. Its connection is made by the first call.
func (c *connection) open(ctx context.Context) (entryapi.Client, error) {
	if c.conn == nil {
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		if err := c.workload.await(ctx); err != nil {
			return entryapi.Client{}, fmt.Errorf("unable to connect to SPIRE server %s: %w", c.address, err)
		}
		conn, err := grpc.NewClient("passthrough:///"+c.target(ctx), grpc.WithTransportCredentials(credentials.NewTLS(c.workload.tls())))
		if err != nil {
			return entryapi.Client{}, fmt.Errorf("unable to connect to SPIRE server %s: %w", c.address, err)
		}
		c.conn = conn
	}
	return entryapi.Client{Conn: c.conn}, nil
}

// close ends the connection. The next one resolves the address again, since the Service may be another one.
func (c *connection) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// target is the address with the IP address of the Service that it names, since the resolver of the host may not know names
// of Services.
func (c *connection) target(ctx context.Context) string {
	namespace, name, port, isService := parseService(c.address)
	if !isService {
		return c.address
	}
	found, err := c.client.Get(ctx, k8s.Ref{Resource: services, Namespace: namespace, Name: name})
	if err != nil {
		if !c.unresolved {
			c.log.Warn("cannot read the Service of the SPIRE server, its name is resolved by the host", "service", namespace+"/"+name, "error", err)
		}
		c.unresolved = true
		return c.address
	}
	c.unresolved = false
	ip, _, _ := unstructured.NestedString(found.Object, "spec", "clusterIP")
	if ip == "" || ip == corev1.ClusterIPNone {
		return c.address
	}
	return net.JoinHostPort(ip, port)
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
