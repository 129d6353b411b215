// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/skep-operator/skep/resources/spire/internal/entryapi"
	"github.com/skep-operator/skep/resources/spire/spiretest"
)

// BenchmarkBareClient makes the same calls with nothing around them: the limit that the server sets.
func BenchmarkBareClient(b *testing.B) {
	many := 50_000
	if testing.Short() {
		many = 500
	}
	kind := Kind[int]{
		Parent: OperatorPath, Path: func(n int) string { return fmt.Sprint("/identity/", n) },
		Selectors: func(int) []Selector { return []Selector{{Type: "cilium", Value: "mutual-auth"}} },
	}
	for range b.N {
		b.StopTimer()
		s := spiretest.Start(b, "spiffe.cilium")
		c := DefaultConfig
		c.MeshAuthSPIREAgentSocket, c.MeshAuthSPIREServerAddress = s.Agent.Socket, s.Address()
		w, err := newWorkload(c)
		if err != nil {
			b.Fatal(err)
		}
		var running errgroup.Group
		ctx := b.Context()
		running.Go(func() error { return w.run(ctx) })
		if err := w.await(ctx); err != nil {
			b.Fatal(err)
		}
		conn, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(credentials.NewTLS(w.tls())))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		api := entryapi.Client{Conn: conn}
		b.StartTimer()
		calls, limited := errgroup.WithContext(ctx)
		calls.SetLimit(parallel)
		for from := 0; from < many; from += batchSize {
			batch := make([]entryapi.Entry, batchSize)
			for i := range batch {
				batch[i] = kind.entry("spiffe.cilium", from+i)
			}
			calls.Go(func() error {
				_, err := api.Create(limited, batch)
				return err
			})
		}
		if err := calls.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if s.Len() != many {
			b.Error(fmt.Sprint(s.Len(), " entries"))
		}
	}
}
