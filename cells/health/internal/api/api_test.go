// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

// The documents describe what is served.
func TestDocuments(t *testing.T) {
	var doc struct {
		BasePath string                                `json:"basePath"`
		Paths    map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal([]byte(Swagger), &doc); err != nil {
		t.Fatal(err)
	}
	served := (&handlers{}).router()
	for path := range doc.Paths {
		if served[doc.BasePath+path] == nil {
			t.Errorf("%s is documented and not served", path)
		}
		if !strings.Contains(DocsPage, `href="`+doc.BasePath+path+`"`) {
			t.Errorf("%s is missing in the page", path)
		}
	}
	for path := range served {
		below, versioned := strings.CutPrefix(path, doc.BasePath)
		if versioned && below != "/docs" && doc.Paths[below] == nil {
			t.Errorf("%s is served and not documented", path)
		}
	}
}

// API-4: what /v1/metrics says of each type.
func TestGather(t *testing.T) {
	r := prometheus.NewRegistry()
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "b_gauge", Help: "x"}, []string{"which"})
	for which, v := range map[string]float64{"three": 3, "none": 0, "never": math.NaN(), "endless": math.Inf(1)} {
		gauge.WithLabelValues(which).Set(v)
	}
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "a_counter", Help: "x"})
	counter.Add(2.5)
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "c_histogram", Help: "x"})
	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "d_summary", Help: "x"})
	untyped := prometheus.NewUntypedFunc(prometheus.UntypedOpts{Name: "e_untyped", Help: "x"}, func() float64 { return 1 })
	for _, v := range []float64{1, 4} {
		histogram.Observe(v)
		summary.Observe(v)
	}
	r.MustRegister(gauge, counter, histogram, summary, untyped)
	samples, err := gather(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(samples)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"name":"a_counter","value":2.5},{"name":"b_gauge","labels":{"which":"none"}},{"name":"b_gauge","labels":{"which":"three"},"value":3},` +
		`{"name":"c_histogram","value":5},{"name":"d_summary","value":5},{"name":"e_untyped","value":1}]`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}
