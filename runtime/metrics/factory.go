// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics

import "github.com/prometheus/client_golang/prometheus"

// Factory makes collectors whose names start with the namespace of the operator and the subsystem of a module.
type Factory struct{ Namespace, Subsystem string }

// In is the factory with another subsystem, which may be empty.
func (f Factory) In(subsystem string) Factory { return Factory{f.Namespace, subsystem} }

func (f Factory) opts(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: f.Namespace, Subsystem: f.Subsystem, Name: name, Help: help}
}

// Counter makes a counter.
func (f Factory) Counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts(f.opts(name, help)))
}

// CounterVec makes a counter with labels.
func (f Factory) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts(f.opts(name, help)), labels)
}

// Gauge makes a gauge.
func (f Factory) Gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts(f.opts(name, help)))
}

// GaugeVec makes a gauge with labels.
func (f Factory) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts(f.opts(name, help)), labels)
}

func (f Factory) histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: f.Namespace, Subsystem: f.Subsystem, Name: name, Help: help, Buckets: buckets}
}

// Histogram makes a histogram.
func (f Factory) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(f.histogram(name, help, buckets))
}

// HistogramVec makes a histogram with labels.
func (f Factory) HistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(f.histogram(name, help, buckets), labels)
}

// ResetGauges sets gauges to zero and removes the label values of gauges with labels. Other collectors keep what they
// have.
func ResetGauges(collectors []prometheus.Collector) {
	for _, c := range collectors {
		switch c := c.(type) {
		case *prometheus.GaugeVec:
			c.Reset()
		case prometheus.Gauge:
			c.Set(0)
		}
	}
}
