// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package features

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/version"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/metrics"
)

// server is an API server that answers with a version, or is away.
type server struct{ version atomic.Pointer[string] }

func (s *server) is(version string) { s.version.Store(&version) }

func (s *server) Version(context.Context) (*version.Info, error) {
	v := s.version.Load()
	if v == nil {
		return nil, errors.New("away")
	}
	return &version.Info{GitVersion: *v}, nil
}

func (*server) Address() string { return "" }

// shown are the versions that the metric has.
func shown(t *testing.T, m *featureMetrics) (versions []string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.Kubernetes)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, sample := range f.GetMetric() {
			if f.GetName() != "op_feature_controlplane_kubernetes_version" || sample.GetGauge().GetValue() != 1 || sample.GetLabel()[0].GetName() != "version" {
				t.Errorf("%s: %s", f.GetName(), sample)
			}
			versions = append(versions, sample.GetLabel()[0].GetValue())
		}
	}
	return versions
}

// MET-7: the version is there once the API server has said it, and follows an upgrade.
func TestVersionOfKubernetes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tree := &server{}, health.NewTree()
		m := newMetrics(metrics.Factory{Namespace: "op"})
		jobs := job.NewGroup("features", tree.Reporter("features"), job.Hooks{})
		jobs.Add("kubernetes", newVersionJob(versionParams{Server: s, Metrics: m, Log: slog.New(slog.DiscardHandler)}))
		if err := jobs.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := func(after time.Duration, versions ...string) {
			t.Helper()
			time.Sleep(after) // in the bubble
			synctest.Wait()
			if got := shown(t, m); !slices.Equal(got, versions) {
				t.Errorf("the metric has %q, want %q", got, versions)
			}
		}
		want(time.Minute)
		s.is("nonsense")
		want(time.Minute)
		if degraded := tree.Degraded(); len(degraded) > 0 {
			t.Errorf("degraded: %+v", degraded)
		}
		s.is("v1.34.1-eks-113cf36")
		want(versionPause, "1.34.1")
		s.is("v1.35.0+k3s1")
		want(versionInterval, "1.35.0")
		if err := jobs.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
