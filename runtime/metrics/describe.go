// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Collectors are the exported fields of a struct of collectors, or of a pointer
// to one. A field that is nil, or no collector, is an error.
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
		switch {
		case value.IsZero() && f.Type.Implements(reflect.TypeFor[prometheus.Collector]()):
			errs = append(errs, fmt.Errorf("field %s of %T is not set", f.Name, metrics))
		case !ok:
			errs = append(errs, fmt.Errorf("field %s of %T is no collector", f.Name, metrics))
		default:
			list = append(list, c)
		}
	}
	return list, errors.Join(errs...)
}

// Metric describes a metric for people.
type Metric struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"` // counter, gauge, histogram, summary or untyped
	Labels []string `json:"labels,omitempty"`
	Help   string   `json:"help"`
	Module string   `json:"module"`
}

// Describe lists the metrics of a module's collectors, by name. It does not
// collect them.
func Describe(module string, collectors []prometheus.Collector) []Metric {
	var list []Metric
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() { c.Describe(descs); close(descs) }()
		for d := range descs {
			m := parseDesc(d)
			m.Type, m.Module = typeOf(c), module
			list = append(list, m)
		}
	}
	sortByName(list)
	return list
}

func sortByName(list []Metric) {
	slices.SortStableFunc(list, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
}

func typeOf(c prometheus.Collector) string {
	switch c := c.(type) {
	case *Also:
		return typeOf(c.of)
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	case *prometheus.SummaryVec:
		return "summary"
	case prometheus.Gauge: // before Counter: a gauge can do all that a counter can
		return "gauge"
	case prometheus.Counter:
		return "counter"
	case prometheus.Histogram: // looks the same as a summary
		var value dto.Metric
		if err := c.Write(&value); err == nil && value.Summary != nil {
			return "summary"
		}
		return "histogram"
	}
	return "untyped" // a function's, or a collector of its own kind
}

// A Desc shows its parts only as text.
var descText = regexp.MustCompile(`fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), constLabels: .*variableLabels: \{([^{}]*)\}\}$`)

func parseDesc(d *prometheus.Desc) Metric {
	parts := descText.FindStringSubmatch(d.String())
	if parts == nil {
		return Metric{Name: d.String()}
	}
	m := Metric{Name: unquote(parts[1]), Help: unquote(parts[2])}
	for label := range strings.SplitSeq(parts[3], ",") {
		if inner, ok := strings.CutPrefix(label, "c("); ok { // with a constraint
			label = strings.TrimSuffix(inner, ")")
		}
		if label != "" {
			m.Labels = append(m.Labels, label)
		}
	}
	return m
}

func unquote(s string) string {
	text, err := strconv.Unquote(s)
	if err != nil {
		return s
	}
	return text
}
