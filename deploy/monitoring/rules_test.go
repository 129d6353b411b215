// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package monitoring

import (
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

var promQL = parser.NewParser(parser.Options{})

// readRules reads the rules as Prometheus does, expressions and templates
// included.
func readRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(read(t, "rules.yaml"), false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	var rules []rulefmt.Rule
	for _, g := range groups.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) < 10 {
		t.Fatalf("only %d rules", len(rules))
	}
	return rules
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// standard are metrics that an operator has beside those of the reference, and
// their labels. A test of cmd/operator scrapes them.
var standard = map[string][]string{
	"cilium_hive_status":                            {"status"},
	"cilium_operator_process_resident_memory_bytes": nil,
	"cilium_operator_process_start_time_seconds":    nil,
	"go_gc_gomemlimit_bytes":                        nil,
}

var referenceRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| ([a-z]+) \\| ([^|]*) \\|")

// declared are the metrics of the operator by the names of their series, and
// their labels.
func declared(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for name, labels := range standard {
		all[name] = labels
	}
	for _, row := range referenceRow.FindAllStringSubmatch(string(read(t, "../../docs/reference/metrics.md")), -1) {
		name, kind, labels := row[1], row[2], strings.Split(strings.ReplaceAll(row[3], " ", ""), ",")
		if kind != "histogram" {
			all[name] = labels
			continue
		}
		all[name+"_count"], all[name+"_sum"], all[name+"_bucket"] = labels, labels, append(labels, "le")
	}
	if len(all) < 20 {
		t.Fatalf("only %d metrics are found", len(all))
	}
	return all
}

// TestMetricsExist holds every selector of every alert to the metrics that the
// operator has, and to their labels.
func TestMetricsExist(t *testing.T) {
	all := declared(t)
	for _, r := range readRules(t) {
		expr, err := promQL.ParseExpr(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, selector := range parser.ExtractSelectors(expr) {
			name := ""
			for _, m := range selector {
				if m.Name == model.MetricNameLabel {
					name = m.Value
				}
			}
			own, ok := all[name]
			if !ok {
				t.Errorf("%s: the operator has no metric %q", r.Alert, name)
			}
			for _, m := range selector {
				if m.Name != model.MetricNameLabel && !slices.Contains(own, m.Name) {
					t.Errorf("%s: %s has no label %s", r.Alert, name, m.Name)
				}
			}
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if a, ok := node.(*parser.AggregateExpr); ok {
				checkGrouping(t, r.Alert, a, all)
			}
			return nil
		})
	}
}

// checkGrouping makes sure that what is grouped by is a label of what is grouped.
func checkGrouping(t *testing.T, alert string, a *parser.AggregateExpr, all map[string][]string) {
	t.Helper()
	for _, selector := range parser.ExtractSelectors(a.Expr) {
		for _, m := range selector {
			for _, by := range a.Grouping {
				if m.Name == model.MetricNameLabel && !slices.Contains(all[m.Value], by) {
					t.Errorf("%s groups by %s, which %s does not have", alert, by, m.Value)
				}
			}
		}
	}
}

// TestAlertsAreExplained looks for what people need to act, in the alert and in
// docs/alerts.md, whose sections are those alerts, in their order.
func TestAlertsAreExplained(t *testing.T) {
	const page = "https://github.com/skep-operator/skep/blob/main/docs/alerts.md#"
	var names, sections []string
	for _, r := range readRules(t) {
		names = append(names, r.Alert)
		for _, key := range []string{"summary", "description"} {
			if len(r.Annotations[key]) < 10 {
				t.Errorf("%s has no %s", r.Alert, key)
			}
		}
		if want := page + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: severity is %q", r.Alert, r.Labels["severity"])
		}
	}
	for _, found := range regexp.MustCompile(`(?m)^### (CiliumOperator\w+)$`).FindAllStringSubmatch(string(read(t, "../../docs/alerts.md")), -1) {
		sections = append(sections, found[1])
	}
	if !slices.Equal(names, sections) {
		t.Errorf("alerts are\n\t%q\nand docs/alerts.md has sections on\n\t%q", names, sections)
	}
}

// TestPrometheusRule compares the rule file with the object that has the same
// rules.
func TestPrometheusRule(t *testing.T) {
	var rules map[string]any
	var object struct {
		APIVersion, Kind string
		Metadata         struct{ Name, Namespace string }
		Spec             map[string]any
	}
	for file, into := range map[string]any{"rules.yaml": &rules, "prometheusrule.yaml": &object} {
		if err := yaml.UnmarshalStrict(read(t, file), into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if got := fmt.Sprint(object.APIVersion, " ", object.Kind, " ", object.Metadata); got != "monitoring.coreos.com/v1 PrometheusRule {cilium-operator kube-system}" {
		t.Errorf("the object is %s", got)
	}
	if !reflect.DeepEqual(object.Spec, rules) {
		t.Error("prometheusrule.yaml has other rules than rules.yaml: run make generate")
	}
}
