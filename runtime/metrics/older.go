// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Older has the samples of a gauge or a counter under the name that it had in an older release: dashboards and alerts of
// both find what they query.
type Older struct {
	desc   *prometheus.Desc
	labels []string
	of     prometheus.Collector
}

var _ prometheus.Collector = (*Older)(nil)

// Older offers the samples of a gauge or a counter under an older name, too. newer is its name now, and labels are its labels.
func (f Factory) Older(name, newer string, of prometheus.Collector, labels ...string) *Older {
	fullName := prometheus.BuildFQName(f.Namespace, f.Subsystem, name)
	help := "Older name of " + prometheus.BuildFQName(f.Namespace, f.Subsystem, newer)
	return &Older{prometheus.NewDesc(fullName, help, labels, nil), labels, of}
}

// Describe implements prometheus.Collector.
func (o *Older) Describe(to chan<- *prometheus.Desc) { to <- o.desc }

// Collect implements prometheus.Collector.
func (o *Older) Collect(to chan<- prometheus.Metric) {
	samples := make(chan prometheus.Metric)
	go func() {
		defer close(samples)
		o.of.Collect(samples)
	}()
	for sample := range samples {
		to <- o.rename(sample)
	}
}

func (o *Older) rename(sample prometheus.Metric) prometheus.Metric {
	var is dto.Metric
	if err := sample.Write(&is); err != nil {
		return prometheus.NewInvalidMetric(o.desc, err)
	}
	kind, value := prometheus.GaugeValue, is.GetGauge().GetValue()
	if is.Counter != nil {
		kind, value = prometheus.CounterValue, is.Counter.GetValue()
	}
	byName := map[string]string{}
	for _, pair := range is.Label {
		byName[pair.GetName()] = pair.GetValue()
	}
	values := make([]string, len(o.labels))
	for i, label := range o.labels {
		values[i] = byName[label]
	}
	renamed, err := prometheus.NewConstMetric(o.desc, kind, value, values...)
	if err != nil {
		return prometheus.NewInvalidMetric(o.desc, err)
	}
	return renamed
}
