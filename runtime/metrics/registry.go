// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Registry is the collectors of one hive. It is safe for concurrent use.
type Registry struct {
	*prometheus.Registry

	mu      sync.Mutex
	modules []*Module // with something registered
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{Registry: prometheus.NewRegistry()} }

// Module returns a registerer for the module of the given id. A module may have
// several, each of which keeps what is registered through it apart.
func (r *Registry) Module(id string) *Module { return &Module{registry: r, id: id} }

// List describes all that is registered through modules, by name.
func (r *Registry) List() []Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Metric
	for _, m := range r.modules {
		list = append(list, Describe(m.id, m.collectors)...)
	}
	sortByName(list)
	return list
}

// Module registers the metrics of a module. It is a prometheus.Registerer and
// safe for concurrent use.
type Module struct {
	registry   *Registry
	id         string
	collectors []prometheus.Collector // guarded by the registry's lock
}

// Register implements prometheus.Registerer.
func (m *Module) Register(c prometheus.Collector) error {
	r := m.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.Registry.Register(c); err != nil {
		return fmt.Errorf("registering %s of %s: %w%s", name(c), m.id, err, r.owner(err))
	}
	if len(m.collectors) == 0 {
		r.modules = append(r.modules, m)
	}
	m.collectors = append(m.collectors, c)
	return nil
}

// owner says who has registered what stands in the way.
func (r *Registry) owner(err error) string {
	if twice := new(prometheus.AlreadyRegisteredError); errors.As(err, twice) {
		for _, m := range r.modules {
			if slices.ContainsFunc(m.collectors, func(c prometheus.Collector) bool { return same(c, twice.ExistingCollector) }) {
				return " (it is registered by " + m.id + ")"
			}
		}
	}
	return ""
}

func same(a, b prometheus.Collector) bool { return reflect.TypeOf(a).Comparable() && a == b }

// name is that of the first metric of a collector.
func name(c prometheus.Collector) string {
	for _, m := range Describe("", []prometheus.Collector{c}) {
		return m.Name
	}
	return "a metric"
}

// MustRegister implements prometheus.Registerer. It panics with the error of
// Register; a constructor that calls it then fails with that.
func (m *Module) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := m.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (m *Module) Unregister(c prometheus.Collector) bool {
	r := m.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	m.collectors = slices.DeleteFunc(m.collectors, func(k prometheus.Collector) bool {
		return same(c, k)
	})
	m.forget()
	return r.Registry.Unregister(c)
}

// Drop unregisters all that was registered through m.
func (m *Module) Drop() {
	r := m.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range m.collectors {
		r.Registry.Unregister(c)
	}
	m.collectors = nil
	m.forget()
}

// forget takes m out of the registry's list when nothing is left of it.
func (m *Module) forget() {
	if len(m.collectors) == 0 {
		m.registry.modules = slices.DeleteFunc(m.registry.modules, func(k *Module) bool { return k == m })
	}
}
