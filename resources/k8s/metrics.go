// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// clientMetrics are about the requests of all modules.
type clientMetrics struct {
	Requests *prometheus.HistogramVec
	Waited   *prometheus.HistogramVec
	Uncaused *prometheus.CounterVec
	Unsent   prometheus.Counter
}

func newMetrics() *clientMetrics {
	const ns = "cilium_operator"
	return &clientMetrics{
		Requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Name: "k8s_client_request_duration_seconds", Help: "How long the API server took to begin its answer",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"module", "method", "code"}),
		Waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Name: "k8s_client_rate_limit_duration_seconds", Help: "How long requests waited for the client's own rate limit",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"module"}),
		Uncaused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Name: "k8s_client_writes_without_cause_total", Help: "Writes without a known cause; always a defect",
		}, []string{"module"}),
		Unsent: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Name: "k8s_client_fenced_bytes_total", Help: "Bytes that were dropped unsent or unacknowledged when a term's connections were reset",
		}),
	}
}

func (m *clientMetrics) requested(module, method string, resp *http.Response, took time.Duration) {
	code := "error"
	if resp != nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	m.Requests.WithLabelValues(module, method, code).Observe(took.Seconds())
}

func (m *clientMetrics) waited(module string, d time.Duration) {
	m.Waited.WithLabelValues(module).Observe(d.Seconds())
}

func (m *clientMetrics) unsent(bytes int) { m.Unsent.Add(float64(bytes)) }
