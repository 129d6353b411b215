// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package features

import (
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func TestCell(t *testing.T) { celltest.Check(t, Cell) }

type switches struct {
	Services bool `flag:"services" usage:"Nodes serve"`
}

// leader is the term of the test.
type leader struct {
	cell.In

	Term lifecycle.Term `name:"leader"`
}

// MET-7, MET-E10: a feature is enabled where its module is, in whatever term that is.
func TestFeatures(t *testing.T) {
	duty := func(id string, cells ...cell.Cell) cell.Cell { return cell.Module(id, "Is a duty", cells...) }
	var m *featureMetrics
	h := hive.New("test", cell.Set(
		cell.Module("features", "Reports", cell.Metrics(newMetrics), cell.Hook("report", newReport), cell.Invoke(func(own *featureMetrics) { m = own })),
		cell.Module("election", "Leads", cell.Config(switches{}), cell.Invoke(func(leader) {})),
		duty("ingress"),
		cell.Term("leader",
			duty("lbipam"),
			duty("nodeipam", cell.EnabledBy(cell.When("asked for", []string{"services"}, func(s switches) bool { return s.Services }))),
		),
	), hive.LogTo(io.Discard), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	if err := flags.Parse(nil); err != nil {
		t.Fatal(err)
	}
	if err := h.Configure(flags); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	got := map[string]float64{}
	for name, gauge := range map[string]prometheus.Gauge{
		"gateway": m.GatewayAPI, "ingress": m.Ingress, "l7": m.L7Traffic, "lbipam": m.LBIPAM, "nodeipam": m.NodeIPAM,
	} {
		got[name] = testutil.ToFloat64(gauge)
	}
	if diff := cmp.Diff(map[string]float64{"gateway": 0, "ingress": 1, "l7": 0, "lbipam": 1, "nodeipam": 0}, got); diff != "" {
		t.Error(diff)
	}
}
