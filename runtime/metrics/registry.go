// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Registry is the collectors of one hive. It is safe for concurrent use.
type Registry struct {
	*prometheus.Registry

	mu      sync.Mutex
	modules map[string][]prometheus.Collector
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{Registry: prometheus.NewRegistry(), modules: map[string][]prometheus.Collector{}}
}

// Module is the registerer of a module.
func (r *Registry) Module(id string) prometheus.Registerer { return moduleRegisterer{r, id} }

// Drop unregisters all that a module registered.
func (r *Registry) Drop(id string) {
	r.mu.Lock()
	collectors := r.modules[id]
	delete(r.modules, id)
	r.mu.Unlock()
	for _, c := range collectors {
		r.Unregister(c)
	}
}

type moduleRegisterer struct {
	registry *Registry
	id       string
}

func (m moduleRegisterer) Register(c prometheus.Collector) error {
	if err := m.registry.Registry.Register(c); err != nil {
		return fmt.Errorf("registering a metric of %s: %w", m.id, err)
	}
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	m.registry.modules[m.id] = append(m.registry.modules[m.id], c)
	return nil
}

func (m moduleRegisterer) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := m.Register(c); err != nil {
			panic(err)
		}
	}
}

func (m moduleRegisterer) Unregister(c prometheus.Collector) bool {
	m.registry.mu.Lock()
	m.registry.modules[m.id] = slices.DeleteFunc(m.registry.modules[m.id], func(k prometheus.Collector) bool { return k == c })
	m.registry.mu.Unlock()
	return m.registry.Registry.Unregister(c)
}

// Collectors are the exported fields of a struct of collectors.
func Collectors(metrics any) ([]prometheus.Collector, error) {
	v := reflect.Indirect(reflect.ValueOf(metrics))
	if v.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%T is no struct of collectors", metrics)
	}
	var list []prometheus.Collector
	var errs []error
	for f, value := range v.Fields() {
		if !f.IsExported() {
			continue
		}
		c, ok := value.Interface().(prometheus.Collector)
		if !ok || value.IsZero() {
			errs = append(errs, fmt.Errorf("field %s of %T is no collector", f.Name, metrics))
			continue
		}
		list = append(list, c)
	}
	return list, errors.Join(errs...)
}

// Metric describes a collector for people.
type Metric struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	Labels []string `json:"labels,omitempty"`
	Help   string   `json:"help"`
	Module string   `json:"module"`
}

// Describe lists the metrics of a module's collectors.
func Describe(module string, collectors []prometheus.Collector) []Metric {
	var list []Metric
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc, 64)
		go func() { c.Describe(descs); close(descs) }()
		for d := range descs {
			m := parseDesc(d)
			m.Type, m.Module = typeOf(c), module
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func typeOf(c prometheus.Collector) string {
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	case prometheus.Gauge: // before Counter: a gauge can do all that a counter can
		return "gauge"
	case prometheus.Counter:
		return "counter"
	case prometheus.Histogram:
		return "histogram"
	}
	return "untyped"
}

// A Desc shows its parts only as text.
var descText = regexp.MustCompile(`fqName: "([^"]*)", help: "(.*)", constLabels: .*variableLabels: \{(.*)\}`)

func parseDesc(d *prometheus.Desc) Metric {
	parts := descText.FindStringSubmatch(d.String())
	if parts == nil {
		return Metric{Name: d.String()}
	}
	m := Metric{Name: parts[1], Help: parts[2]}
	if parts[3] != "" {
		m.Labels = strings.Split(parts[3], ",")
	}
	return m
}
