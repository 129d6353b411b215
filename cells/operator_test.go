// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// The whole operator without a cluster: what docs/wire/configuration.md says of
// its configuration.

// away are options of an operator whose API server is not there, and which
// serves nothing.
var away = []string{
	"--k8s-api-server=http://127.0.0.1:1", "--operator-api-serve-addr=127.0.0.1:0", "--operator-sock-path=", "--enable-gops=false",
}

// program runs a program of the given name until it ends, or until told has been
// logged, and returns what it wrote.
func program(t *testing.T, name, told string, env map[string]string, args ...string) (string, error) {
	t.Helper()
	out := &logtest.Buffer{}
	root := command.New(name, cells.Operator, hive.EnvPrefix("CILIUM_"), hive.LogTo(out), hive.Environ(func(key string) (string, bool) {
		value, ok := env[key]
		return value, ok
	}))
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(out)
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Limit)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return out.String(), err
		case <-tick.C:
			if told != "" && strings.Contains(out.String(), told) {
				cancel()
			}
		}
	}
}

func configDir(t *testing.T, options map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for key, value := range options {
		if err := os.WriteFile(filepath.Join(dir, key), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "--config-dir=" + dir
}

// CONF-1; CONF-E1.
func TestPrecedence(t *testing.T) {
	dir := configDir(t, map[string]string{"cluster-name": "prod\n"})
	env := map[string]string{"CILIUM_CLUSTER_NAME": "dev"}
	for _, test := range []struct {
		env    map[string]string
		args   []string
		value  string
		source string
	}{
		{nil, nil, "default", "default"},
		{nil, []string{dir}, "prod", "directory"},
		{env, []string{dir}, "dev", "environment"},
		{env, []string{dir, "--cluster-name=x"}, "x", "flag"},
	} {
		out, err := program(t, "operator", "", test.env, append(test.args, "config", "-o", "json")...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var options []struct {
			Name, Value string
			Source      struct{ Kind string }
		}
		if err := json.Unmarshal([]byte(out), &options); err != nil {
			t.Fatal(err)
		}
		for _, o := range options {
			if o.Name == "cluster-name" && (o.Value != test.value || o.Source.Kind != test.source) {
				t.Errorf("with %v and %v it is %q (%s), want %q (%s)", test.env, test.args, o.Value, o.Source.Kind, test.value, test.source)
			}
		}
	}
}

// MODE-1, MODE-2, CONF-3, CONF-7 and LEAD-4; CONF-E2, CONF-E3, CONF-E8 and CONF-E12.
func TestStart(t *testing.T) {
	defer waittest.NoLeaks(t, goleak.IgnoreCurrent())
	for name, test := range map[string]struct {
		args []string
		err  string // "" for none
	}{
		"options of agents":           {[]string{configDir(t, map[string]string{"some-agent-option": "foo", "ipam": "kubernetes"})}, ""},
		"a value of another type":     {[]string{configDir(t, map[string]string{"cluster-id": "abc"})}, `Incorrect config-map flag value: --cluster-id="abc"`},
		"no directory":                {[]string{"--config-dir=" + filepath.Join(t.TempDir(), "none")}, "Non-existent configuration directory"},
		"a mode of another binary":    {[]string{"--ipam=eni"}, "cilium-operator-generic doesn't support --ipam=eni (use cilium-operator-aws)"},
		"a mode that nobody has":      {[]string{"--ipam=nonsense"}, "must be one of [cluster-pool multi-pool"},
		"a mode without an allocator": {[]string{"--ipam=kubernetes"}, ""},
		"an unknown flag":             {[]string{"--cluster-nam=x"}, "unknown flag --cluster-nam; did you mean cluster-name?"},
		"slices without endpoints": {
			[]string{"--cilium-release=1.19", "--kvstore=etcd", "--disable-endpoint-crd", "--enable-cilium-endpoint-slice"}, "slices are made of CiliumEndpoints",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := program(t, "cilium-operator-generic", "msg=started", nil, append(test.args, away...)...)
			switch {
			case test.err == "" && err != nil:
				t.Errorf("%v\n%s", err, out)
			case test.err == "" && !strings.Contains(out, "msg=started"):
				t.Errorf("it did not start:\n%s", out)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("the error is %v, want one with %q", err, test.err)
			}
		})
	}
}

// MODE-2: a ConfigMap may name a mode that this binary lacks. Nodes get no
// addresses, which is told once, and all else runs.
func TestIPAMOfConfigMap(t *testing.T) {
	defer waittest.NoLeaks(t, goleak.IgnoreCurrent())
	var tree *health.Tree
	log := &logtest.Buffer{}
	h := hive.New("cilium-operator-generic", cells.Operator.With(cell.Invoke(func(t *health.Tree) { tree = t })),
		hive.LogTo(log), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	if err := flags.Parse(append([]string{configDir(t, map[string]string{"ipam": "alibabacloud"})}, away...)); err != nil {
		t.Fatal(err)
	}
	if err := h.Configure(flags); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	const text = "alibabacloud allocator is not supported by this version of cilium-operator-generic"
	found := false
	for _, s := range tree.Degraded() {
		found = found || s.ID == "cluster.options" && strings.Contains(s.Message, text)
	}
	if n := log.Count("level=warning", text); !found || n != 1 || !strings.Contains(log.String(), text) {
		t.Errorf("degraded: %t; %d warnings are logged:\n%s", found, n, log)
	}
}

// CONF-E9.
func TestJSONLog(t *testing.T) {
	out, err := program(t, "operator", `"msg":"started"`, nil, append([]string{"--log-opt=format=json", "--debug", "--ipam=kubernetes"}, away...)...)
	if err != nil {
		t.Fatal(err)
	}
	levels := map[any]int{}
	for line := range strings.Lines(out) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if fields["subsys"] == nil {
			t.Errorf("nobody is named in %s", line)
		}
		levels[fields["level"]]++
	}
	if levels["debug"] == 0 || levels["info"] == 0 {
		t.Errorf("the lines have the levels %v", levels)
	}
}
