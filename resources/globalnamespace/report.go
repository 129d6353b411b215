// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package globalnamespace

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/metrics"
)

// reporter reports Namespaces whose annotation is invalid.
type reporter struct {
	params
	invalid map[string]string // the annotation, by Namespace; of the goroutine that watches
}

type params struct {
	cell.In

	Cluster    cluster.Config
	Namespaces stream.Resource[slim.Namespace]
	Events     *k8s.Events
	Metrics    *scopeMetrics
	Log        *slog.Logger
}

func newReporter(p params) *reporter { return &reporter{params: p, invalid: map[string]string{}} }

func (r *reporter) watch(ctx context.Context) error {
	for batch := range r.Namespaces.Changes(ctx) {
		for _, ch := range batch.Changes {
			if ch.Kind == stream.Delete {
				delete(r.invalid, ch.Key.Name)
			} else {
				r.check(ch.Object)
			}
		}
		r.Metrics.Invalid.Set(float64(len(r.invalid)))
	}
	return ctx.Err()
}

// check reports a Namespace when its annotation becomes invalid, or another invalid one.
func (r *reporter) check(n *slim.Namespace) {
	_, valid := decide(n.Annotations.Labels, r.Cluster.ClusterMeshDefaultGlobalNamespace)
	if valid {
		delete(r.invalid, n.Name)
		return
	}
	value := n.Annotations.Get(Annotation)
	if before, known := r.invalid[n.Name]; known && before == value {
		return
	}
	r.invalid[n.Name] = value
	r.Log.Warn("the annotation of a Namespace is neither true nor false: the Namespace is not global, and nothing of it is exported",
		"namespace", n.Name, "annotation", Annotation, "value", short(value))
	r.Events.Warning(corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: n.Name, UID: n.UID.API()}, "InvalidGlobalAnnotation", fmt.Sprintf(
		"the annotation %s is %q, which is neither true nor false: the Namespace is not global, and nothing of it is exported to other clusters", Annotation, short(value)))
}

// short is the beginning of a value, which may have the size of an object.
func short(value string) string {
	const most = 64
	if runes := []rune(value); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return value
}

type scopeMetrics struct {
	Invalid prometheus.Gauge
}

func newMetrics(f metrics.Factory) *scopeMetrics {
	return &scopeMetrics{
		Invalid: f.In("globalnamespace").Gauge("invalid_annotations", "Namespaces whose annotation "+Annotation+" is neither true nor false"),
	}
}
