// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"testing"

	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/spire/spiretest"
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
		d.eventually("all have entries", func() bool { return d.metric(spire.StatePresent) == float64(many) })
		b.StopTimer()
		calls := s.Calls()
		b.ReportMetric(float64(calls["ListEntries"]+calls["BatchCreateEntry"]), "calls")
		d.create("65000")
		d.eventually("one more", func() bool { return s.Len() == many+1 })
		b.ReportMetric(float64(s.Changes()-calls["BatchCreateEntry"]), "calls/more")
		d.restart()
		d.eventually("all are known", func() bool { return d.metric(spire.StatePresent) == float64(many+1) })
		b.ReportMetric(float64(s.Changes()-calls["BatchCreateEntry"]-1), "changes/restart")
		b.ReportMetric(float64(s.Calls()["ListEntries"]-calls["ListEntries"]), "pages/restart")
		d.end()
	}
}
