// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics

import (
	"cmp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Also has the samples of a metric under the name and with the labels that it has in another release: dashboards and alerts of
// both find what they query.
type Also struct {
	desc   *prometheus.Desc
	labels []string // of the samples, in the order of those of desc
	of     prometheus.Collector
}

var _ prometheus.Collector = (*Also)(nil)

// Also offers the samples of a gauge, a counter or a histogram under another name, too. as is its name here. labels are its labels; one that has another
// name there is name=label. Labels that are not named are left out: samples must differ without them.
func (f Factory) Also(name, as string, of prometheus.Collector, labels ...string) *Also {
	a := &Also{of: of}
	var names []string
	for _, label := range labels {
		there, here, _ := strings.Cut(label, "=")
		names, a.labels = append(names, there), append(a.labels, cmp.Or(here, there))
	}
	fullName := prometheus.BuildFQName(f.Namespace, f.Subsystem, name)
	a.desc = prometheus.NewDesc(fullName, "Name in other releases of "+prometheus.BuildFQName(f.Namespace, f.Subsystem, as), names, nil)
	return a
}

// Describe implements prometheus.Collector.
func (a *Also) Describe(to chan<- *prometheus.Desc) { to <- a.desc }

// Collect implements prometheus.Collector.
func (a *Also) Collect(to chan<- prometheus.Metric) {
	samples := make(chan prometheus.Metric)
	go func() {
		defer close(samples)
		a.of.Collect(samples)
	}()
	for sample := range samples {
		to <- a.rename(sample)
	}
}

func (a *Also) rename(sample prometheus.Metric) prometheus.Metric {
	var is dto.Metric
	if err := sample.Write(&is); err != nil {
		return prometheus.NewInvalidMetric(a.desc, err)
	}
	byName := map[string]string{}
	for _, pair := range is.Label {
		byName[pair.GetName()] = pair.GetValue()
	}
	values := make([]string, len(a.labels))
	for i, label := range a.labels {
		values[i] = byName[label]
	}
	renamed, err := a.sample(&is, values)
	if err != nil {
		return prometheus.NewInvalidMetric(a.desc, err)
	}
	return renamed
}

// sample is a sample with these values of labels.
func (a *Also) sample(is *dto.Metric, values []string) (prometheus.Metric, error) {
	switch h := is.Histogram; {
	case h != nil:
		buckets := make(map[float64]uint64, len(h.Bucket))
		for _, b := range h.Bucket {
			buckets[b.GetUpperBound()] = b.GetCumulativeCount()
		}
		return prometheus.NewConstHistogram(a.desc, h.GetSampleCount(), h.GetSampleSum(), buckets, values...)
	case is.Counter != nil:
		return prometheus.NewConstMetric(a.desc, prometheus.CounterValue, is.Counter.GetValue(), values...)
	}
	return prometheus.NewConstMetric(a.desc, prometheus.GaugeValue, is.GetGauge().GetValue(), values...)
}
