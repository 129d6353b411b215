// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// Log is its log, one JSON object per line.
func (o *Operator) Log() *logtest.Buffer { return o.log }

// Messages are the messages of modules whose ids begin with a prefix, without the list
// of options, each with its attributes.
func (o *Operator) Messages(module string) []string {
	o.t.Helper()
	var lines []string
	for line := range strings.Lines(o.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			o.t.Fatalf("%s: %v", line, err)
		}
		text := fmt.Sprint(fields["level"], ": ", fields["msg"])
		if subsys, _ := fields["subsys"].(string); !strings.HasPrefix(subsys, module) || strings.Contains(text, ":   --") {
			continue
		}
		for _, key := range []string{"level", "msg", "time", "subsys"} {
			delete(fields, key)
		}
		lines = append(lines, fmt.Sprintf("%s %v", text, fields))
	}
	return lines
}

// Warnings are the warnings among the messages, without that of changes which are undone again and again: how soon it comes
// depends on how fast attempts follow each other.
func (o *Operator) Warnings(module string) []string {
	o.t.Helper()
	return slices.DeleteFunc(o.Messages(module), func(line string) bool {
		return !strings.HasPrefix(line, "warning") || strings.Contains(line, "undone again and again")
	})
}

// Degraded are the degraded parts of modules whose ids begin with a prefix, a line each,
// with message and error; "" if there are none.
func (o *Operator) Degraded(module string) string {
	var b strings.Builder
	for _, s := range o.health.Degraded() {
		if strings.HasPrefix(s.ID, module) {
			fmt.Fprintf(&b, "%s: %s: %s\n", s.ID, s.Message, s.Error)
		}
	}
	return b.String()
}

// Level is the health of a part, "" if it has not reported any.
func (o *Operator) Level(id string) health.Level {
	for _, s := range o.health.Snapshot() {
		if s.ID == id {
			return s.Level
		}
	}
	return ""
}

// Metric is the value of a counter or a gauge, 0 if it is not there. The labels
// are in the order of their names.
func (o *Operator) Metric(name string, labels ...string) float64 {
	o.t.Helper()
	for _, m := range o.Samples(name) {
		if m.Name == name && slices.EqualFunc(m.Labels, labels, func(l *dto.LabelPair, value string) bool { return l.GetValue() == value }) {
			return m.Value
		}
	}
	return 0
}

// Sample is the value of a counter or a gauge, or the number of observations of a histogram.
type Sample struct {
	Name   string           // cilium_operator_ aside
	Labels []*dto.LabelPair // in the order of their names
	Value  float64
}

// Label is the value of a label, "" if there is none.
func (s Sample) Label(name string) string {
	for _, l := range s.Labels {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// Samples are the metrics whose names begin so, cilium_operator_ aside.
func (o *Operator) Samples(prefix string) []Sample {
	o.t.Helper()
	families, err := o.metrics.Gather()
	if err != nil {
		o.t.Fatal(err)
	}
	var samples []Sample
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "cilium_operator_")
		if !ours || !strings.HasPrefix(name, prefix) {
			continue
		}
		for _, m := range f.GetMetric() {
			samples = append(samples, Sample{name, m.GetLabel(), m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())})
		}
	}
	return samples
}

// MetricSum is the sum of a counter or a gauge over all its labels. The test fails if
// there is no such metric.
func (o *Operator) MetricSum(name string) (sum float64) {
	o.t.Helper()
	found := false
	for _, s := range o.Samples(name) {
		if s.Name == name {
			sum, found = sum+s.Value, true
		}
	}
	if !found {
		o.t.Errorf("there is no metric %s", name)
	}
	return sum
}
