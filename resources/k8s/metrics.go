// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

// clientMetrics are about the requests of all modules.
type clientMetrics struct {
	Requests *prometheus.HistogramVec
	Waited   *prometheus.HistogramVec
	Uncaused *prometheus.CounterVec
	Unsent   prometheus.Counter

	// Those of 1.20, of the same requests.
	Latency   *prometheus.HistogramVec
	Throttled prometheus.Histogram
	Calls     *prometheus.CounterVec
}

func newMetrics() *clientMetrics {
	const ns = "cilium_operator"
	f, buckets := metrics.Factory{Namespace: ns, Subsystem: "k8s_client"}, prometheus.ExponentialBuckets(0.001, 4, 8)
	return &clientMetrics{
		Requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Name: "k8s_client_request_duration_seconds", Help: "How long the API server took to begin its answer",
			Buckets: buckets,
		}, []string{"module", "method", "code"}),
		Waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Name: "k8s_client_rate_limit_duration_seconds", Help: "How long requests waited for the client's own rate limit",
			Buckets: buckets,
		}, []string{"module"}),
		Uncaused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Name: "k8s_client_writes_without_cause_total", Help: "Writes without a known cause; always a defect",
		}, []string{"module"}),
		Unsent: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Name: "k8s_client_fenced_bytes_total", Help: "Bytes that were dropped unsent or unacknowledged when a term's connections were reset",
		}),
		Latency:   f.HistogramVec("api_latency_time_seconds", "How long the API server took to begin its answer, by the kind of path", buckets, "path", "method"),
		Throttled: f.Histogram("rate_limiter_duration_seconds", "How long requests waited for the client's own rate limit, of those, too, that did not wait", buckets),
		Calls:     f.CounterVec("api_calls_total", "Requests to the API server", "host", "method", "return_code"),
	}
}

// noAnswer is the code of requests without an answer, and noReturnCode the word of client-go for it.
const noAnswer, noReturnCode = "error", "<error>"

// requested counts a request of a module to a server.
func (m *clientMetrics) requested(module, host string, req *http.Request, resp *http.Response, took time.Duration) {
	code, returnCode := noAnswer, noReturnCode
	if resp != nil {
		code = strconv.Itoa(resp.StatusCode)
		returnCode = code
	}
	m.Requests.WithLabelValues(module, req.Method, code).Observe(took.Seconds())
	m.Latency.WithLabelValues(kindOfPath(req.URL.Path), req.Method).Observe(took.Seconds())
	m.Calls.WithLabelValues(host, req.Method, returnCode).Inc()
}

// kindOfPath is the path of a resource with a placeholder for each name, as client-go's metrics have it, so that there are as many as kinds of
// requests. Of what is no resource it is the first part.
func kindOfPath(path string) string {
	ref, ok := refOf(path)
	if !ok {
		first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		return "/" + first
	}
	if ref.Namespace != "" {
		ref.Namespace = "{namespace}"
	}
	if ref.Name != "" {
		ref.Name = "{name}"
	}
	return "/" + strings.Join(pathOf(ref), "/")
}

func (m *clientMetrics) waited(module string, d time.Duration) {
	m.Waited.WithLabelValues(module).Observe(d.Seconds())
}

func (m *clientMetrics) unsent(bytes int) { m.Unsent.Add(float64(bytes)) }
