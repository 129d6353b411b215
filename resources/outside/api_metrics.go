// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/skep-operator/skep/runtime/metrics"
)

// APIMetrics are the metrics of a server's API by operation, with the names that the original has for clouds:
// ec2_api_duration_seconds and ec2_api_rate_limit_duration_seconds.
type APIMetrics struct {
	Duration  *prometheus.HistogramVec
	RateLimit *prometheus.HistogramVec
}

// NewAPIMetrics returns a constructor for cell.Metrics. server is the subsystem.
func NewAPIMetrics(server string) func(metrics.Factory) *APIMetrics {
	buckets := slices.Concat([]float64{0.25, 0.5}, prometheus.LinearBuckets(1, 1, 60))
	return func(f metrics.Factory) *APIMetrics {
		f = f.In(server)
		return &APIMetrics{
			Duration:  f.HistogramVec("api_duration_seconds", "How long calls to the API took", buckets, "operation", "response_code"),
			RateLimit: f.HistogramVec("api_rate_limit_duration_seconds", "How long calls to the API waited for their turn", buckets, "operation"),
		}
	}
}

func (m *APIMetrics) waited(operation string, d time.Duration) {
	if m != nil {
		m.RateLimit.WithLabelValues(operation).Observe(d.Seconds())
	}
}

func (m *APIMetrics) made(operation string, took time.Duration, err error) {
	if m != nil {
		m.Duration.WithLabelValues(operation, codeOf(err)).Observe(took.Seconds())
	}
}

// codeOf is the label response_code: OK, the HTTP status or the gRPC code of an answer, or Failed. An error of a client
// library says its status by a method.
func codeOf(err error) string {
	answer := new(answerError)
	var (
		other interface{ HTTPStatusCode() int }
		call  interface{ GRPCStatus() *status.Status }
	)
	switch {
	case err == nil:
		return "OK"
	case errors.As(err, &answer):
		return statusLine(answer.code)
	case errors.As(err, &other) && other.HTTPStatusCode() > 0:
		return statusLine(other.HTTPStatusCode())
	case errors.As(err, &call):
		return call.GRPCStatus().Code().String()
	}
	return "Failed"
}

func statusLine(code int) string { return fmt.Sprintf("%d %s", code, http.StatusText(code)) }
