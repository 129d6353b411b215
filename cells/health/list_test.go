// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/cells/health/internal/api"
)

// MET-4: the values of a running operator, as clients of the original ask for them.
func TestMetricsList(t *testing.T) {
	o := start(t, "--enable-metrics")
	list := func(args ...string) string {
		t.Helper()
		out, err := run(o, append([]string{"metrics", "list", "--server-address", o.address("api")}, args...)...)
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		return out
	}
	text := list("-p", "^cilium_operator_process_(open_fds|start_time_seconds)$|go_info")
	if !regexp.MustCompile(`(?m)^Metric +Labels +Value$`).MatchString(text) ||
		!regexp.MustCompile(`(?m)^cilium_operator_process_open_fds +\d+\.000000$`).MatchString(text) ||
		!regexp.MustCompile(`(?m)^go_info +version="go[^"]+" +1\.000000$`).MatchString(text) || strings.Count(text, "\n") != 4 {
		t.Errorf("as text:\n%s", text)
	}
	var samples []api.Sample
	if err := json.Unmarshal([]byte(list("-o", "json", "--match-pattern", "go_info")), &samples); err != nil || len(samples) != 1 || samples[0].Labels["version"] == "" {
		t.Errorf("as JSON: %v, %v", samples, err)
	}
	samples = nil
	if err := yaml.Unmarshal([]byte(list("-o", "yaml", "-p", "go_info")), &samples); err != nil || len(samples) != 1 || samples[0].Value != 1 {
		t.Errorf("as YAML: %v, %v", samples, err)
	}
	for _, path := range []string{"jsonpath={[0].name}", "jsonpath={$[0].name}", "jsonpath='{[*].name}'"} {
		if got := list("-o", path, "-s", o.address("api"), "-p", "go_info"); strings.Trim(got, "'\n") != "go_info" {
			t.Errorf("as %s: %q", path, got)
		}
	}
	for _, wrong := range [][]string{
		{"-o", "xml"}, {"-o", "jsonpath={"}, {"-p", "("}, {"-s", "127.0.0.1:1"}, {"-s", "http://nowhere.invalid:9234/x"}, {"extra"},
	} {
		if out, err := run(o, append([]string{"metrics", "list", "--server-address", o.address("api")}, wrong...)...); err == nil {
			t.Errorf("%v: no error, but %q", wrong, out)
		}
	}
	// What there is to be measured needs no operator.
	if out, err := run(o, "metrics", "describe", "-p", "go_info"); err != nil || !strings.HasPrefix(out, "METRIC") {
		t.Errorf("%v\n%s", err, out)
	}
}

// MET-4: the local socket is asked; where there is none, the address of the options.
func TestMetricsListFindsTheOperator(t *testing.T) {
	o := start(t, "--enable-metrics")
	none := filepath.Join(t.TempDir(), "none")
	for what, args := range map[string][]string{
		"the socket":  {"--operator-sock-path=" + o.socket, "--operator-api-serve-addr=127.0.0.1:1"},
		"the address": {"--operator-sock-path=" + none, "--operator-api-serve-addr=" + o.address("api")},
	} {
		out, err := run(o, append([]string{"metrics", "list", "-p", "go_info"}, args...)...)
		if err != nil || !strings.Contains(out, "go_info") {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
	}
	_, err := run(o, "metrics", "list", "--operator-sock-path="+none, "--operator-api-serve-addr=127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "there is no socket "+none) || !strings.Contains(err.Error(), "the operator at 127.0.0.1:1") {
		t.Errorf("without an operator: %v", err)
	}
}
