// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/spire/internal/entryapi"
	"github.com/skep-operator/skep/resources/spire/spiretest"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// clusterIPs is a client that knows the cluster IPs of Services by namespace/name.
type clusterIPs struct {
	k8s.Client
	known map[string]string
}

func (c clusterIPs) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	ip, ok := c.known[ref.Namespace+"/"+ref.Name]
	if !ok {
		return nil, errors.New(http.StatusText(http.StatusNotFound))
	}
	return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"clusterIP": ip}}}, nil
}

// SPIRE-11; SPIRE-E5.
func TestTarget(t *testing.T) {
	log := &logtest.Buffer{}
	client := clusterIPs{known: map[string]string{"spire/spire-server": "10.96.0.7", "spire/six": "fd00::7", "spire/headless": "None", "spire/empty": ""}}
	for address, want := range map[string]string{
		"spire-server.spire.svc:8081":               "10.96.0.7:8081",
		"spire-server.spire.svc.cluster.local:8081": "10.96.0.7:8081",
		"six.spire.svc:8081":                        "[fd00::7]:8081",
		"headless.spire.svc:8081":                   "headless.spire.svc:8081",
		"empty.spire.svc:8081":                      "empty.spire.svc:8081",
		"other.spire.svc:8081":                      "other.spire.svc:8081",
		"spire.example.com:8081":                    "spire.example.com:8081",
	} {
		c := &Connection{address: address, client: client, log: slog.New(slog.NewTextHandler(log, nil))}
		for range 2 {
			if got := c.target(t.Context()); got != want {
				t.Errorf("%s: %s, want %s", address, got, want)
			}
		}
	}
	if n := log.Count("cannot read the Service"); n != 1 {
		t.Errorf("%d warnings of one Service", n)
	}
}

// ZT-11: duties share a connection. A failure of one has all connect again, and ends no call of another.
func TestSharedConnection(t *testing.T) {
	s := spiretest.Start(t, "spiffe.cilium")
	c := connect(t, s)
	first, second := acquire(t, c), acquire(t, c)
	if first != second {
		t.Error("there are two connections")
	}
	list := func(l *link) error {
		_, err := entryapi.Client{Conn: l.conn}.List(t.Context(), entryapi.Filter{ParentID: entryapi.ID{TrustDomain: "spiffe.cilium", Path: OperatorPath}}, 1, "")
		return err
	}
	c.release(first, true)
	if err := list(second); err != nil {
		t.Errorf("a call after the failure of another duty: %v", err)
	}
	third := acquire(t, c)
	if third == second {
		t.Error("it does not connect again")
	}
	c.release(second, false)
	if err := list(second); status.Code(err) != codes.Canceled {
		t.Errorf("a connection that nothing uses is open: %v", err)
	}
	c.release(third, false)
	if fourth := acquire(t, c); fourth != third || list(fourth) != nil {
		t.Error("a connection is closed between two attempts")
	}
	c.Close()
	if err := list(third); err != nil {
		t.Errorf("a call while the term ends: %v", err)
	}
	c.release(third, false)
	if err := list(third); status.Code(err) != codes.Canceled {
		t.Errorf("the connection is open after the term: %v", err)
	}
	last := acquire(t, c)
	c.release(last, false)
	if err := list(last); status.Code(err) != codes.Canceled {
		t.Errorf("a connection is kept after the term: %v", err)
	}
}

// connect returns a connection whose certificate is watched until the test ends.
func connect(t testing.TB, s *spiretest.Server) *Connection {
	t.Helper()
	config := DefaultConfig
	config.MeshAuthSPIREAgentSocket, config.MeshAuthSPIREServerAddress = s.Agent.Socket, s.Address()
	c, err := NewConnection(config, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		c.Close()
	})
	return c
}

func acquire(t *testing.T, c *Connection) *link {
	t.Helper()
	l, err := c.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}
