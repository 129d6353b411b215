// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/skep-operator/skep/runtime/metrics"
)

// counts are the values of counters and the numbers of observations, of the metrics of 1.20.
func counts(t *testing.T, m *clientMetrics) map[string]int {
	t.Helper()
	collectors, err := metrics.Collectors(m)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), "cilium_operator_k8s_client_")
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				name += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			if strings.HasPrefix(name, "api_") || strings.HasPrefix(name, "rate_limiter_") {
				all[name] = int(s.GetCounter().GetValue()) + int(s.GetHistogram().GetSampleCount())
			}
			name = strings.TrimPrefix(f.GetName(), "cilium_operator_k8s_client_")
		}
	}
	return all
}

// Requests have the names of 1.20, too: by kinds of paths, of which there are few, and by what the server has answered.
func TestRequestsByPath(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/gone") {
			w.WriteHeader(http.StatusNotFound)
		}
		answer(w, corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}})
	}))
	t.Cleanup(s.Close)
	d := openTransport(t, func(c *Config) { c.K8sAPIServer = s.URL })
	typed, err := kubernetes.NewForConfig(d.client(t, "duty").RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range []string{"web-1", "web-2", "gone"} {
		_, _ = typed.CoreV1().Pods("shop").Get(t.Context(), pod, metav1.GetOptions{})
	}
	_, _ = typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	s.Close()
	_, err = typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err == nil {
		t.Error("a server that is away answers")
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	host := " host=" + u.Host + " method=GET return_code="
	want := map[string]int{
		"api_calls_total" + host + "200": 3, "api_calls_total" + host + "404": 1, "api_calls_total" + host + "<error>": 1,
		"api_latency_time_seconds method=GET path=/api/v1/namespaces/{namespace}/pods/{name}": 3, "api_latency_time_seconds method=GET path=/api/v1/nodes": 2,
		"rate_limiter_duration_seconds": 5,
	}
	if diff := cmp.Diff(want, counts(t, d.metrics)); diff != "" {
		t.Error(diff)
	}
}

func TestKindOfPath(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods": "/api/v1/pods",
		"/apis/cilium.io/v2/ciliumnodes/n1/status":              "/apis/cilium.io/v2/ciliumnodes/{name}/status",
		"/clusters/one/api/v1/namespaces/shop":                  "/api/v1/namespaces/{name}",
		"/apis/apps/v1/namespaces/shop/deployments/web/scale":   "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
		"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews": "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		"/openapi/v3/apis/cilium.io/v2":                         "/openapi",
		"/apis/cilium.io/v2":                                    "/apis",
		"/healthz":                                              "/healthz",
		"/":                                                     "/",
		"/api/v1/namespaces/shop/services/web/proxy/of/whatever/length": "/api/v1/namespaces/{namespace}/services/{name}/proxy",
	} {
		if got := kindOfPath(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
