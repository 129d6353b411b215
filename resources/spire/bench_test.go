// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"fmt"
	"testing"
	"time"

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

// BenchmarkSQLite registers some with a server whose creations cost what they cost sqlite, many times as fast. Its seconds are those of such a server; least are those
// of the same entries by calls of fifty, one at a time, with nothing around them.
func BenchmarkSQLite(b *testing.B) {
	for _, c := range []struct{ others, more, scale int }{{0, 20_000, 5}, {2_000, 1_000, 5}, {10_000, 1_000, 5}, {30_000, 1_000, 5}, {50_000, 1_000, 5}, {100_000, 1_000, 5}} {
		if testing.Short() {
			c.more, c.scale = 100, 1000
		}
		b.Run(fmt.Sprintf("%d-to-%d", c.more, c.others), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				s := spiretest.Start(b, "spiffe.cilium")
				s.CostAsSQLite(c.scale, c.others)
				r := newRig(b, s, numbered(c.more)...)
				r.connection.pacer.patience = scaled(time.Duration(c.scale))
				r.connection.pacer.patience.attempt = usualPatience.attempt // what an attempt costs the operator is not scaled
				var least time.Duration
				for n := range c.more {
					least += spiretest.CostOf(c.others+n) / batchSize
				}
				b.StartTimer()
				began := time.Now()
				end := r.start()
				r.eventually("all have entries", func() bool { return s.Len() == c.more })
				took := time.Since(began)
				b.StopTimer()
				end()
				b.ReportMetric(took.Seconds()*float64(c.scale), "server-s")
				b.ReportMetric(least.Seconds(), "least-s")
				b.ReportMetric(float64(s.Calls()["BatchCreateEntry"]), "calls")
				b.ReportMetric(float64(s.Calls()["ListEntries"]-1), "lists-after-time-outs")
				b.ReportMetric(float64(s.MostCreating()), "at-once")
			}
		})
	}
}
