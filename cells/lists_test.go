// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// CONF-6, by option and source: how many elements a text has. labels is read as agents read it, for a comma there
// is part of a regular expression; other lists take both separators in every source.
func TestListsBySource(t *testing.T) {
	const directory, environment, commandLine = "directory", "environment", "command line"
	for _, test := range []struct {
		option, source, text, want string // as the config command shows it
	}{
		{"labels", directory, "k8s:a{1,3} b,c", "k8s:a{1,3} b,c"},
		{"labels", environment, "k8s:a,b", "k8s:a,b"},
		{"labels", commandLine, "k8s:a,b", "k8s:a b"},
		{"labels", commandLine, `"k8s:a{1,3}",b`, "k8s:a{1,3} b"},
		{"cluster-pool-ipv4-cidr", directory, "10.0.0.0/16 10.1.0.0/16", "10.0.0.0/16,10.1.0.0/16"},
		{"cluster-pool-ipv4-cidr", directory, "10.0.0.0/16, 10.1.0.0/16", "10.0.0.0/16,10.1.0.0/16"},
		{"cluster-pool-ipv4-cidr", environment, "10.0.0.0/16 10.1.0.0/16", "10.0.0.0/16,10.1.0.0/16"},
		{"cluster-pool-ipv4-cidr", commandLine, "10.0.0.0/16,10.1.0.0/16", "10.0.0.0/16,10.1.0.0/16"},
		{"cluster-pool-ipv6-cidr", directory, "fd00::/104\nfd01::/104", "fd00::/104,fd01::/104"},
		{"ces-dynamic-rate-limit-nodes", directory, "1 2", "1,2"},
		{"enable-cilium-operator-server-access", directory, "GetHealthz GetMetrics", "GetHealthz,GetMetrics"},
		{"log-driver", directory, "syslog", "syslog"},
	} {
		h := hive.New("cilium-operator", cells.Operator, hive.LogTo(&logtest.Buffer{}), hive.EnvPrefix("CILIUM_"),
			hive.Environ(func(name string) (string, bool) {
				return test.text, test.source == environment && name == "CILIUM_"+strings.ToUpper(strings.ReplaceAll(test.option, "-", "_"))
			}))
		var args []string
		switch test.source {
		case directory:
			args = []string{configDir(t, map[string]string{test.option: test.text})}
		case commandLine:
			args = []string{"--" + test.option + "=" + test.text}
		}
		flags := h.FlagSet()
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		err := h.Configure(flags)
		if e, _ := h.Values().Lookup(test.option); err != nil || e.Value != test.want {
			t.Errorf("%s=%q of the %s is %q, %v; want %q", test.option, test.text, test.source, e.Value, err, test.want)
		}
	}
}
