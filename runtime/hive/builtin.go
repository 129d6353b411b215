// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging"
	"github.com/skep-operator/skep/runtime/metrics"
)

// builtins are what the hive offers to every constructor.
var builtins = []resolve.BuiltinSpec{
	{Type: reflect.TypeFor[cell.ModuleInfo](), PerModule: true},
	{Type: reflect.TypeFor[*slog.Logger](), PerModule: true},
	{Type: reflect.TypeFor[health.Reporter](), PerModule: true},
	{Type: reflect.TypeFor[job.Group](), PerModule: true},
	{Type: reflect.TypeFor[prometheus.Registerer](), PerModule: true},
	{Type: reflect.TypeFor[cell.BuildInfo]()},
	{Type: reflect.TypeFor[*health.Tree]()},
	{Type: reflect.TypeFor[*metrics.Registry]()},
	{Type: reflect.TypeFor[*config.Values]()},
	{Type: reflect.TypeFor[*logging.Log]()},
	{Type: reflect.TypeFor[lifecycle.Shutdown]()},
	{Type: reflect.TypeFor[graph.Source]()},
}

// builtinValue makes the value of a builtin node for a scope.
func (s *scope) builtinValue(n *resolve.Node) reflect.Value {
	h := s.hive
	key := n.Results[0].Key
	var value any
	switch key.Type {
	case reflect.TypeFor[cell.ModuleInfo]():
		value = cell.ModuleInfo{ID: n.For.Label(), Title: n.For.Title, Term: s.name()}
	case reflect.TypeFor[*slog.Logger]():
		value = h.log.Logger(n.For.Label())
	case reflect.TypeFor[health.Reporter]():
		value = s.module(n.For).health
	case reflect.TypeFor[job.Group]():
		value = s.module(n.For).jobs
	case reflect.TypeFor[prometheus.Registerer]():
		value = s.module(n.For).metrics
	case reflect.TypeFor[cell.BuildInfo]():
		value = h.buildInfo()
	case reflect.TypeFor[*health.Tree]():
		value = h.health
	case reflect.TypeFor[*metrics.Registry]():
		value = h.metrics
	case reflect.TypeFor[*config.Values]():
		value = h.values
	case reflect.TypeFor[*logging.Log]():
		value = h.log
	case reflect.TypeFor[lifecycle.Shutdown]():
		value = lifecycle.Shutdown(h.requestShutdown)
	case reflect.TypeFor[graph.Source]():
		value = graph.Source(h.Graph)
	case reflect.TypeFor[lifecycle.Term]():
		value = h.terms[key.Name]
	}
	// The type asked for may be an interface that the value satisfies.
	v := reflect.New(key.Type).Elem()
	v.Set(reflect.ValueOf(value))
	return v
}

func (h *Hive) buildInfo() cell.BuildInfo {
	return cell.BuildInfo{Name: h.name, Version: h.options.version}
}

// declaredCollectors runs a constructor of metrics.
func declaredCollectors(n *resolve.Node) ([]prometheus.Collector, error) {
	made, err := resolve.CallWithConfigs(n.Fn, nil)
	if err == nil && n.ReturnsError() && !made[1].IsNil() {
		err, _ = reflect.TypeAssert[error](made[1])
	}
	if err != nil {
		return nil, err
	}
	return metrics.Collectors(made[0].Interface())
}

// DeclaredMetrics are the metrics of enabled modules, by name. Of all
// constructors it runs only those of metrics, which take nothing.
func (h *Hive) DeclaredMetrics() ([]metrics.Metric, error) {
	if err := h.Select(); err != nil {
		return nil, err
	}
	list := metrics.Describe("hive", h.own.collectors())
	for _, n := range h.graph.Nodes {
		if !n.Metrics || !n.Module.Enabled {
			continue
		}
		collectors, err := declaredCollectors(n)
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", n.Module.Label(), err)
		}
		list = append(list, metrics.Describe(n.Module.ID, collectors)...)
	}
	slices.SortFunc(list, func(a, b metrics.Metric) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
