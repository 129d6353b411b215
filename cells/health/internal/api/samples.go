// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Sample is a metric of /v1/metrics.
type Sample struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Value  float64           `json:"value,omitempty"`
}

// gather lists all metrics, with the sum of distributions, without values that JSON lacks, such as infinity.
func gather(g prometheus.Gatherer) ([]Sample, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, err
	}
	samples := []Sample{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			s := Sample{Name: f.GetName(), Value: valueOf(m)}
			if math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
				continue
			}
			for _, l := range m.GetLabel() {
				if s.Labels == nil {
					s.Labels = map[string]string{}
				}
				s.Labels[l.GetName()] = l.GetValue()
			}
			samples = append(samples, s)
		}
	}
	return samples, nil
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.GetCounter().GetValue()
	case m.Gauge != nil:
		return m.GetGauge().GetValue()
	case m.Histogram != nil:
		return m.GetHistogram().GetSampleSum()
	case m.Summary != nil:
		return m.GetSummary().GetSampleSum()
	}
	return m.GetUntyped().GetValue()
}
