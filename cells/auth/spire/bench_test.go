// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/skep-operator/skep/cells/auth/spire/internal/entryapi"
	"github.com/skep-operator/skep/cells/auth/spire/internal/spiretest"
	"github.com/skep-operator/skep/resources/domain/identity"
)

// many is the number of identities of the benchmarks, which with -short are only tried.
func many() int {
	if testing.Short() {
		return 500
	}
	return 50_000
}

// BenchmarkRegister registers many identities from cold, then one more, and then restarts. The calls are metrics beside the
// time.
func BenchmarkRegister(b *testing.B) {
	many := many()
	for range b.N {
		b.StopTimer()
		s := spiretest.Start(b, domain)
		d := newDuty(b, s)
		d.cluster.ClusterID = 1 // the range of 0 has as many numbers, some of which are reserved
		d.createRange(65536, 65536+many)
		b.StartTimer()
		d.lead()
		d.eventually("all have entries", func() bool { return d.metric(statePresent) == float64(many) })
		b.StopTimer()
		calls := s.Calls()
		b.ReportMetric(float64(calls["ListEntries"]+calls["BatchCreateEntry"]), "calls")
		d.create("65000")
		d.eventually("one more", func() bool { return s.Len() == many+1 })
		b.ReportMetric(float64(s.Changes()-calls["BatchCreateEntry"]), "calls/more")
		d.restart()
		d.eventually("all are known", func() bool { return d.metric(statePresent) == float64(many+1) })
		b.ReportMetric(float64(s.Changes()-calls["BatchCreateEntry"]-1), "changes/restart")
		b.ReportMetric(float64(s.Calls()["ListEntries"]-calls["ListEntries"]), "pages/restart")
		d.end()
	}
}

// BenchmarkBareClient makes the same calls with nothing around them: the limit that the server sets.
func BenchmarkBareClient(b *testing.B) {
	many := many()
	for range b.N {
		b.StopTimer()
		s := spiretest.Start(b, domain)
		w, err := newWorkload(newDuty(b, s).config)
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
				batch[i] = ids{domain}.entry(identity.Number(65536 + from + i))
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
