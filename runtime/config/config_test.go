// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config_test

import (
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/config"
)

// options has a field of every kind.
type options struct {
	Config      string
	ConfigDir   string
	ClusterName string
	ClusterID   int
	EniTags     map[string]string
	Cidrs       []string `flag:"cluster-pool-ipv4-cidr"`
	Interval    time.Duration
	Debug       bool
	Ratio       float64
	Node        netip.Addr
	Pools       []netip.Prefix
}

func (o options) Flags(fs *pflag.FlagSet) {
	fs.String(config.FileOption, o.Config, "")
	fs.String(config.DirOption, o.ConfigDir, "")
	fs.String("cluster-name", o.ClusterName, "")
	fs.Int("cluster-id", o.ClusterID, "")
	fs.StringToString("eni-tags", o.EniTags, "")
	fs.StringSlice("cluster-pool-ipv4-cidr", o.Cidrs, "")
	fs.Duration("interval", o.Interval, "")
	fs.BoolP("debug", "D", o.Debug, "")
	fs.Float64("ratio", o.Ratio, "")
	fs.String("node", "", "")
	fs.StringSlice("pools", nil, "")
}

var defaults = options{ClusterName: "default", ClusterID: 1, Interval: time.Minute, Cidrs: []string{"10.0.0.0/8"}, EniTags: map[string]string{"k": "v"}}

// strict are the options that make near misses fatal.
type strict struct{ StrictConfig bool }

func (o strict) Flags(fs *pflag.FlagSet) { fs.Bool(config.StrictOption, o.StrictConfig, "") }

func add(t *testing.T, s *config.Schema, module string, o interface{ Flags(*pflag.FlagSet) }) {
	t.Helper()
	if errs := s.Add(module, reflect.ValueOf(o), o.Flags); len(errs) > 0 {
		t.Fatal(errs)
	}
}

func schema(t *testing.T) *config.Schema {
	t.Helper()
	s := config.NewSchema()
	add(t, s, "m", defaults)
	add(t, s, "strict", strict{})
	return s
}

// given is where values come from in a test.
type given struct {
	args []string
	env  map[string]string
	dir  map[string]string
	home map[string]string // files in the home directory
}

func (g given) load(t *testing.T, s *config.Schema) (*config.Values, error) {
	t.Helper()
	args := g.args
	if g.dir != nil {
		args = append([]string{"--config-dir=" + writeFiles(t, g.dir)}, args...)
	}
	t.Setenv("HOME", writeFiles(t, g.home))
	fs := s.FlagSet("test")
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return s.Load(config.Sources{
		EnvPrefix: "CILIUM_", FileName: "cilium-operators",
		Environ: func(name string) (string, bool) { v, ok := g.env[name]; return v, ok },
	}, fs)
}

func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// values loads and wants no error.
func (g given) values(t *testing.T) (options, *config.Values) {
	t.Helper()
	v, err := g.load(t, schema(t))
	if err != nil {
		t.Fatal(err)
	}
	return structOf(t, v), v
}

func structOf(t *testing.T, v *config.Values) options {
	t.Helper()
	s, ok := v.Struct(reflect.TypeFor[options]())
	if !ok {
		t.Fatal("no struct")
	}
	return s.Interface().(options)
}

// problems loads and wants a report.
func (g given) problems(t *testing.T) []config.Problem {
	t.Helper()
	_, err := g.load(t, schema(t))
	report := new(config.Report)
	if !errors.As(err, &report) {
		t.Fatalf("%v is no report", err)
	}
	return report.Problems
}

func wantProblem(t *testing.T, g given, want ...string) {
	t.Helper()
	problems := g.problems(t)
	if len(problems) != 1 {
		t.Fatalf("%d problems: %v", len(problems), problems)
	}
	for _, w := range want {
		if !strings.Contains(problems[0].String(), w) {
			t.Errorf("%q does not say %q", problems[0], w)
		}
	}
}

// CONF-1, CONF-E1.
func TestPrecedence(t *testing.T) {
	for _, c := range []struct {
		name   string
		given  given
		want   string
		source config.Kind
	}{
		{"default", given{}, "default", config.FromDefault},
		{"directory", given{dir: map[string]string{"cluster-name": "prod\n"}}, "prod", config.FromDir},
		{"file", given{home: map[string]string{"cilium-operators.yaml": "cluster-name: file"}}, "file", config.FromFile},
		{"file over directory", given{
			dir: map[string]string{"cluster-name": "prod\n"}, home: map[string]string{"cilium-operators.yaml": "cluster-name: file"},
		}, "file", config.FromFile},
		{"environment over directory (A1)", given{
			dir: map[string]string{"cluster-name": "prod\n"}, env: map[string]string{"CILIUM_CLUSTER_NAME": "dev"},
		}, "dev", config.FromEnvironment},
		{"environment over file", given{
			home: map[string]string{"cilium-operators.yaml": "cluster-name: file"}, env: map[string]string{"CILIUM_CLUSTER_NAME": "dev"},
		}, "dev", config.FromEnvironment},
		{"flag over all (A1)", given{
			dir: map[string]string{"cluster-name": "prod\n"}, env: map[string]string{"CILIUM_CLUSTER_NAME": "dev"}, args: []string{"--cluster-name=x"},
		}, "x", config.FromFlag},
		{"flag with the default's value", given{
			env: map[string]string{"CILIUM_CLUSTER_NAME": "dev"}, args: []string{"--cluster-name=default"},
		}, "default", config.FromFlag},
		{"empty flag", given{
			env: map[string]string{"CILIUM_CLUSTER_NAME": "dev"}, args: []string{"--cluster-name="},
		}, "", config.FromFlag},
		{"empty variables count as unset", given{
			dir: map[string]string{"cluster-name": "prod"}, env: map[string]string{"CILIUM_CLUSTER_NAME": ""},
		}, "prod", config.FromDir},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, v := c.given.values(t)
			e, _ := v.Lookup("cluster-name")
			if got.ClusterName != c.want || e.Value != c.want || e.Source.Kind != c.source {
				t.Errorf("%q, %+v, want %q from %s", got.ClusterName, e, c.want, c.source)
			}
			if v.Given("cluster-name") != (c.source != config.FromDefault) {
				t.Error("Given is wrong")
			}
		})
	}
}

func TestEveryValueKnowsWhereItCameFrom(t *testing.T) {
	file := filepath.Join(writeFiles(t, map[string]string{"a.yaml": "# first\ninterval: 2m\n"}), "a.yaml")
	_, v := given{
		args: []string{"--debug", "--config=" + file}, env: map[string]string{"CILIUM_CLUSTER_ID": "7"},
	}.values(t)
	dir := writeFiles(t, map[string]string{"ratio": "0.5"})
	_, w := given{args: []string{"--config-dir=" + dir}}.values(t)
	for name, want := range map[string]string{
		"debug": "flag", "cluster-id": "environment CILIUM_CLUSTER_ID", "interval": "file " + file + ":2", "cluster-name": "default",
	} {
		if e, _ := v.Lookup(name); e.Source.String() != want {
			t.Errorf("%s is from %q, want %q", name, e.Source, want)
		}
	}
	if e, _ := w.Lookup("ratio"); e.Source.String() != "directory "+filepath.Join(dir, "ratio") {
		t.Errorf("ratio is from %q", e.Source)
	}
}

// azure has an option with a variable of its own.
type azure struct{ AzureSubscriptionID string }

func (a azure) Flags(fs *pflag.FlagSet) {
	fs.String("azure-subscription-id", "", "")
	_ = fs.SetAnnotation("azure-subscription-id", config.EnvAnnotation, []string{"AZURE_SUBSCRIPTION_ID", "AZURE_OTHER"})
}

// CONF-2.
func TestFurtherEnvironmentVariables(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"AZURE_SUBSCRIPTION_ID": "a"}, "a"},
		{map[string]string{"AZURE_OTHER": "o"}, "o"},
		{map[string]string{"AZURE_SUBSCRIPTION_ID": "a", "AZURE_OTHER": "o"}, "a"},
		{map[string]string{"AZURE_SUBSCRIPTION_ID": "a", "CILIUM_AZURE_SUBSCRIPTION_ID": "c"}, "c"},
		{map[string]string{"AZURE_SUBSCRIPTION_ID": "a", "CILIUM_AZURE_SUBSCRIPTION_ID": ""}, "a"},
		{map[string]string{"AZURE_CLUSTER_NAME": "x"}, ""},
	} {
		s := config.NewSchema()
		add(t, s, "azure", azure{})
		v, err := given{env: c.env}.load(t, s)
		if err != nil {
			t.Fatal(err)
		}
		if e, _ := v.Lookup("azure-subscription-id"); e.Value != c.want {
			t.Errorf("%v: %q, want %q", c.env, e.Value, c.want)
		}
	}
}

// CONF-3, CONF-E2.
// Without a prefix no variable named like an option is read: PLAN, DEBUG or CONFIG may be meant for other programs.
func TestWithoutAPrefixTheEnvironmentIsLeftAlone(t *testing.T) {
	s := schema(t)
	env := func(name string) (string, bool) {
		return "true", name == "DEBUG" || name == "LABELS" || name == "CONFIG"
	}
	v, err := s.Load(config.Sources{Environ: env}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := v.Lookup("labels"); structOf(t, v).Debug || ok {
		t.Errorf("%+v %+v", structOf(t, v), e)
	}
}

func TestDirectory(t *testing.T) {
	got, v := given{dir: map[string]string{
		"cluster-name": "  prod \n", "cluster-id": "7\n", "some-agent-option": "foo\n", "Mixed-Case": "kept",
	}}.values(t)
	if got.ClusterName != "prod" || got.ClusterID != 7 {
		t.Errorf("%+v", got)
	}
	var unknown []string
	for _, e := range v.Unknown() {
		unknown = append(unknown, e.Name+"="+e.Value)
	}
	if diff := cmp.Diff([]string{"Mixed-Case=kept", "some-agent-option=foo"}, unknown); diff != "" {
		t.Error(diff)
	}
	if len(v.Warnings) > 0 {
		t.Error("agents' options are no reason to warn:", v.Warnings)
	}
}

// A mounted ConfigMap is links to a directory that is swapped as a whole.
func TestMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := filepath.Join(dir, "..2024_11_21_01_00_00.123")
	for _, d := range []string{version, filepath.Join(dir, "sub")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{filepath.Join(version, "cluster-name"): "linked", filepath.Join(dir, "sub", "cluster-id"): "9"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"..data": filepath.Base(version), "cluster-name": "..data/cluster-name"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	got, v := given{args: []string{"--config-dir=" + dir}}.values(t)
	if got.ClusterName != "linked" || got.ClusterID != 1 {
		t.Errorf("%+v", got)
	}
	if len(v.Unknown()) > 0 || len(v.Warnings) > 0 {
		t.Errorf("%v, %v", v.Unknown(), v.Warnings)
	}
}

func TestWhatCannotBeReadIsLeftOutWithAWarning(t *testing.T) {
	dir := writeFiles(t, map[string]string{"cluster-name": "prod"})
	for link, target := range map[string]string{
		"cluster-id": "nowhere",
		"loop":       "loop",
		"interval":   "/proc/self/mem", // a regular file that cannot be read from its start, not even by root
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	got, v := given{args: []string{"--config-dir=" + dir}}.values(t)
	if got.ClusterName != "prod" || got.ClusterID != 1 || got.Interval != time.Minute {
		t.Errorf("%+v", got)
	}
	if len(v.Warnings) != 3 {
		t.Fatalf("%q", v.Warnings)
	}
	for i, key := range []string{"cluster-id", "interval", "loop"} {
		if !strings.HasPrefix(v.Warnings[i], "key "+key+" is left out: ") {
			t.Error(v.Warnings[i])
		}
	}
}

// CONF-E12.
func TestMissingDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	problems := given{args: []string{"--config-dir=" + dir}}.problems(t)
	if len(problems) != 1 || problems[0].String() != "Non-existent configuration directory "+dir {
		t.Error(problems)
	}
	wantProblem(t, given{args: []string{"--config-dir=/dev/null"}}, "reading configuration directory", "/dev/null")
}

// CONF-E3.
func TestWrongTypeInTheDirectory(t *testing.T) {
	wantProblem(t, given{dir: map[string]string{"cluster-id": "abc"}},
		"Incorrect config-map flag value", `--cluster-id="abc"`, "must be a whole number from -9223372036854775808 to 9223372036854775807")
}

// CONF-4.
func TestFileFormats(t *testing.T) {
	want := options{
		ClusterName: "007", ClusterID: 3, EniTags: map[string]string{"Name": "x", "a.b": "y"},
		Cidrs: []string{"10.1.0.0/16", "10.2.0.0/16"}, Interval: 90 * time.Second, Debug: true, Ratio: 0.25,
		Node: netip.MustParseAddr("10.0.0.1"), Pools: []netip.Prefix{netip.MustParsePrefix("fd00::/8")},
	}
	for name, text := range map[string]string{
		"yaml": `
cluster-name: 007
cluster-id: 3
eni-tags: {Name: x, a.b: y}
cluster-pool-ipv4-cidr: [10.1.0.0/16, 10.2.0.0/16]
interval: 1m30s
debug: true
ratio: 0.25
node: 10.0.0.1
pools: fd00::/8
some-agent-option: foo
empty:
`,
		"yml": `
cluster-name: 007
cluster-id: 3
eni-tags:
  Name: x
  a.b: y
cluster-pool-ipv4-cidr: 10.1.0.0/16 10.2.0.0/16
interval: 1m30s
debug: true
ratio: 0.25
node: 10.0.0.1
pools:
- fd00::/8
some-agent-option: foo
`,
		"json": `{
	"cluster-name": "007",
	"cluster-id": 3,
	"eni-tags": {"Name": "x", "a.b": "y"},
	"cluster-pool-ipv4-cidr": ["10.1.0.0\/16", "10.2.0.0/16"],
	"interval": "1m30s", "debug": true, "ratio": 0.25, "node": "10.0.0.1", "pools": "fd00::/8",
	"some-agent-option": "foo", "empty": null
}`,
		"toml": `
cluster-name = "007"
cluster-id = 3
cluster-pool-ipv4-cidr = ["10.1.0.0/16", "10.2.0.0/16"]
interval = "1m30s"
debug = true
ratio = 0.25
node = "10.0.0.1"
pools = "fd00::/8"
some-agent-option = "foo"
[eni-tags]
Name = "x"
"a.b" = "y"
`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, how := range []string{"named", "home"} {
				g := given{home: map[string]string{"cilium-operators." + name: text}}
				if how == "named" {
					file := filepath.Join(writeFiles(t, map[string]string{"some." + name: text}), "some."+name)
					g = given{args: []string{"--config=" + file}}
				}
				got, v := g.values(t)
				got.Config = ""
				if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
					t.Errorf("%s: %s", how, diff)
				}
				if e, ok := v.Lookup("some-agent-option"); !ok || e.Value != "foo" || e.Source.Kind != config.FromFile {
					t.Errorf("%s: %+v", how, e)
				}
				if _, ok := v.Lookup("empty"); ok {
					t.Error("a key without a value counts")
				}
			}
		})
	}
}

// The values of maps and text stand as they are written, from every source.
func TestTextAndCaseSurvive(t *testing.T) {
	want := map[string]string{"Name": "x", "a.b": "y"}
	for name, g := range map[string]given{
		"directory":   {dir: map[string]string{"eni-tags": `{"Name": "x", "a.b": "y"}`, "cluster-name": "007"}},
		"pairs":       {dir: map[string]string{"eni-tags": "Name=x,a.b=y", "cluster-name": "007"}},
		"environment": {env: map[string]string{"CILIUM_ENI_TAGS": `{"Name": "x", "a.b": "y"}`, "CILIUM_CLUSTER_NAME": "007"}},
		"flag":        {args: []string{`--eni-tags={"Name": "x", "a.b": "y"}`, "--cluster-name=007"}},
		"flags":       {args: []string{"--eni-tags=Name=x", "--eni-tags", "a.b=y", "--cluster-name=007"}},
		"yaml":        {home: map[string]string{"cilium-operators.yaml": "eni-tags: {Name: x, a.b: y}\ncluster-name: 007"}},
		"yaml text":   {home: map[string]string{"cilium-operators.yaml": "eni-tags: Name=x,a.b=y\ncluster-name: 007"}},
		"json":        {home: map[string]string{"cilium-operators.json": `{"eni-tags": {"Name": "x", "a.b": "y"}, "cluster-name": "007"}`}},
	} {
		got, _ := g.values(t)
		if !maps.Equal(got.EniTags, want) || got.ClusterName != "007" {
			t.Errorf("%s: %v, %q", name, got.EniTags, got.ClusterName)
		}
	}
}

func TestAFileThatIsReadReplacesTheDirectory(t *testing.T) {
	got, v := given{
		dir:  map[string]string{"cluster-id": "7", "only-in-directory": "x"},
		home: map[string]string{"cilium-operators.yaml": "cluster-name: file"},
	}.values(t)
	if got.ClusterName != "file" || got.ClusterID != 1 {
		t.Errorf("%+v", got)
	}
	if _, ok := v.Lookup("only-in-directory"); ok {
		t.Error("keys of the directory show through")
	}
}

func TestNoFileIsNoMistakeUnlessOneIsNamed(t *testing.T) {
	given{home: map[string]string{"other.yaml": "cluster-name: x"}}.values(t)
	wantProblem(t, given{args: []string{"--config=" + filepath.Join(t.TempDir(), "none.yaml")}}, "reading config file", "none.yaml")
	wantProblem(t, given{args: []string{"--config=" + filepath.Join(writeFiles(t, map[string]string{"a.conf": ""}), "a.conf")}}, "reading config file", "conf")
}

func TestMistakesInAFile(t *testing.T) {
	for file, want := range map[string]string{
		"cilium-operators.yaml|a: 1\nb: [1, [2]]":       "line 2: b must be a single value, a list of them or a mapping to them",
		"cilium-operators.yaml|a: {b: {c: d}}":          "line 1: a must be",
		"cilium-operators.yaml|- a":                     "line 1: must be a mapping of keys to values",
		"cilium-operators.yaml|a: 1\nb: 2\na: 3":        "line 3: a is there twice",
		"cilium-operators.yaml|a: 'b":                   "yaml: ",
		"cilium-operators.json|{\n\"a\": {\"b\": [1]}}": "line 2: a must be",
		"cilium-operators.json|{\"a\": 1,\n\"a\": 2}":   "line 2: a is there twice",
		"cilium-operators.json|{\"a\": 1} x":            "line 1",
		"cilium-operators.json|[1]":                     "line 1: must be an object of keys and values",
		"cilium-operators.json|{\"a\":\n}":              "line",
		"cilium-operators.json|{\"a\": 1":               "line 1",
		"cilium-operators.toml|[a]\n[a.b]\nc = 1":       "a must be a single value",
		"cilium-operators.toml|a = ":                    "toml",
	} {
		name, text, _ := strings.Cut(file, "|")
		wantProblem(t, given{home: map[string]string{name: text}}, "reading config file", want)
	}
}

func TestEmptyFiles(t *testing.T) {
	for name, text := range map[string]string{"cilium-operators.yaml": "", "cilium-operators.yml": "# nothing", "cilium-operators.json": "{}", "cilium-operators.toml": ""} {
		got, _ := given{home: map[string]string{name: text}, dir: map[string]string{"cluster-name": "prod"}}.values(t)
		if got.ClusterName != "default" {
			t.Errorf("%s: an empty file is a file that is read, got %q", name, got.ClusterName)
		}
	}
}

// CONF-5.
func TestKeysWithoutAFlag(t *testing.T) {
	_, v := given{
		dir: map[string]string{"enable-gateway-api": "true", "labels": "a b"}, env: map[string]string{"CILIUM_LABELS": "c", "CILIUM_KVSTORE_PERIODIC_SYNC": "1m"},
	}.values(t)
	for name, want := range map[string]string{"enable-gateway-api": "true", "labels": "c", "kvstore-periodic-sync": "1m"} {
		if e, ok := v.Lookup(name); !ok || e.Value != want {
			t.Errorf("%s is %+v, want %q", name, e, want)
		}
	}
	if e, ok := v.Lookup("proxy-idle-timeout-seconds"); ok {
		t.Errorf("%+v", e)
	}
}

// CONF-6.
func TestTypes(t *testing.T) {
	for _, c := range []struct {
		key, text string
		want      func(options) any
		value     any
	}{
		{"cluster-pool-ipv4-cidr", "a,b", func(o options) any { return o.Cidrs }, []string{"a", "b"}},
		{"cluster-pool-ipv4-cidr", "a b", func(o options) any { return o.Cidrs }, []string{"a", "b"}},
		{"cluster-pool-ipv4-cidr", "a\n b", func(o options) any { return o.Cidrs }, []string{"a", "b"}},
		{"eni-tags", `{"a":"b"}`, func(o options) any { return o.EniTags }, map[string]string{"a": "b"}},
		{"eni-tags", "a=b,c,d=e", func(o options) any { return o.EniTags }, map[string]string{"a": "b,c", "d": "e"}},
		{"interval", "1m30s", func(o options) any { return o.Interval }, 90 * time.Second},
		{"interval", "0", func(o options) any { return o.Interval }, time.Duration(0)},
		{"debug", "t", func(o options) any { return o.Debug }, true},
		{"debug", "1", func(o options) any { return o.Debug }, true},
		{"debug", "f", func(o options) any { return o.Debug }, false},
		{"cluster-id", "007", func(o options) any { return o.ClusterID }, 7},
		{"ratio", "2", func(o options) any { return o.Ratio }, 2.0},
		{"node", "fe80::1", func(o options) any { return o.Node }, netip.MustParseAddr("fe80::1")},
	} {
		for source, g := range map[string]given{
			"directory":   {dir: map[string]string{c.key: c.text}},
			"environment": {env: map[string]string{"CILIUM_" + strings.ToUpper(strings.ReplaceAll(c.key, "-", "_")): c.text}},
			"flag":        {args: []string{"--" + c.key + "=" + c.text}},
			"file":        {home: map[string]string{"cilium-operators.yaml": c.key + ": " + strconvQuote(c.text)}},
		} {
			got, _ := g.values(t)
			if !reflect.DeepEqual(c.want(got), c.value) {
				t.Errorf("%s=%q from %s is %v, want %v", c.key, c.text, source, c.want(got), c.value)
			}
		}
	}
}

func strconvQuote(s string) string {
	return `"` + strings.NewReplacer("\n", `\n`, `"`, `\"`).Replace(s) + `"`
}

func TestMistakesSayWhatIsAllowed(t *testing.T) {
	for args, want := range map[string]string{
		"--interval=5":                      `--interval="5" (flag): must be a duration such as 1m30s`,
		"--debug=maybe":                     `--debug="maybe" (flag): must be true or false`,
		"--ratio=x":                         `--ratio="x" (flag): must be a number`,
		"--node=x":                          `--node="x" (flag): ParseAddr("x"): unable to parse IP`,
		"--pools=10.0.0.0/8,x":              `--pools="10.0.0.0/8,x" (flag): element "x": netip.ParsePrefix("x"): no '/'`,
		"--eni-tags=x":                      `--eni-tags="x" (flag): must be key=value pairs with commas between, or a JSON object of strings`,
		"--cluster-id=99999999999999999999": `must be a whole number from -9223372036854775808 to 9223372036854775807`,
		"--cluster-id=":                     `--cluster-id="" (flag): is empty; leave it out for the default`,
		"--interval=":                       "is empty",
		"--debug=":                          "is empty",
	} {
		wantProblem(t, given{args: []string{args}}, want)
	}
	wantProblem(t, given{home: map[string]string{"cilium-operators.yaml": "cluster-id: [1, 2]"}}, "(file ", "cilium-operators.yaml:1)", "must be a single value, not a list")
	wantProblem(t, given{home: map[string]string{"cilium-operators.yaml": "cluster-id: {a: b}"}}, "must be a single value, not a mapping")
	wantProblem(t, given{home: map[string]string{"cilium-operators.yaml": "cluster-pool-ipv4-cidr: {a: b}"}}, "must be a list, not a mapping")
	wantProblem(t, given{home: map[string]string{"cilium-operators.yaml": "eni-tags: [a=b]"}}, "must be a mapping, not a list")
	wantProblem(t, given{env: map[string]string{"CILIUM_CLUSTER_ID": "x"}}, `--cluster-id="x" (environment CILIUM_CLUSTER_ID)`)
}

func TestAllMistakesAreInOneReport(t *testing.T) {
	s := schema(t)
	v, err := given{args: []string{"--interval=x", "--cluster-id=y", "--cluster-name=ok"}, dir: map[string]string{"ratio": "z"}}.load(t, s)
	want := `3 problems in the configuration:
  --cluster-id="y" (flag): must be a whole number from -9223372036854775808 to 9223372036854775807
  --interval="x" (flag): must be a duration such as 1m30s
  Incorrect config-map flag value: --ratio="z" (directory `
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Error(err)
	}
	// The values are usable all the same.
	got := structOf(t, v)
	if got.Interval != time.Minute || got.ClusterID != 1 || got.ClusterName != "ok" {
		t.Errorf("%+v", got)
	}
}

func TestReportWithoutProblemsIsNoError(t *testing.T) {
	if err := (&config.Report{}).Err(); err != nil {
		t.Error(err)
	}
	if err := (*config.Report)(nil).Err(); err != nil {
		t.Error(err)
	}
}

func TestEmptyValuesOfTextAndCollections(t *testing.T) {
	got, _ := given{dir: map[string]string{"cluster-name": "", "cluster-pool-ipv4-cidr": "\n", "eni-tags": "", "node": ""}}.values(t)
	if got.ClusterName != "" || len(got.Cidrs) > 0 || len(got.EniTags) > 0 || got.Node.IsValid() {
		t.Errorf("%+v", got)
	}
}

func TestRepeatedFlags(t *testing.T) {
	got, _ := given{args: []string{
		"--cluster-pool-ipv4-cidr=a,b", "--cluster-pool-ipv4-cidr=c", "--eni-tags=a=b", "--eni-tags=c=d,a=e",
		"--cluster-name=x", "--cluster-name=y", "--cluster-id=bad", "--cluster-id=2", "-D", "--debug=false",
	}}.values(t)
	if !slices.Equal(got.Cidrs, []string{"a", "b", "c"}) || !maps.Equal(got.EniTags, map[string]string{"a": "e", "c": "d"}) ||
		got.ClusterName != "y" || got.ClusterID != 2 || got.Debug {
		t.Errorf("%+v", got)
	}
}

// Of a scalar flag that is given several times the last one counts, also in messages.
func TestRepeatedScalarFlagsAreReportedOnce(t *testing.T) {
	g := given{args: []string{"--interval=1m", "--interval=abc", "--cluster-name=x", "--cluster-name=y"}}
	wantProblem(t, g, `--interval="abc" (flag): must be a duration such as 1m30s`)
	v, _ := g.load(t, schema(t))
	if e, _ := v.Lookup("cluster-name"); e.Value != "y" {
		t.Errorf("%+v", e)
	}
	s := schema(t)
	if err := s.Ignore("old", func(fs *pflag.FlagSet) {
		fs.String("old-name", "", "")
		fs.StringSlice("old-list", nil, "")
	}); err != nil {
		t.Fatal(err)
	}
	v, err := given{args: []string{"--old-name=a", "--old-name=b", "--old-list=a", "--old-list=b"}}.load(t, s)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"old-name": "b", "old-list": "a,b"} {
		if e, _ := v.Lookup(name); e.Value != want {
			t.Errorf("%s is %q, want %q", name, e.Value, want)
		}
	}
}

// agents has lists that are read as agents read them.
type agents struct {
	Labels     []string
	NodeLabels []string
}

func (a agents) Flags(fs *pflag.FlagSet) {
	fs.StringSlice("labels", a.Labels, "")
	fs.StringSlice("node-labels", a.NodeLabels, "")
	_ = fs.SetAnnotation("labels", config.ListAnnotation, []string{config.WhiteSpaceList})
}

// A list that agents read, too, is split as they do: at white space in a ConfigMap, the environment and
// a file, where a comma is part of a regular expression, and at commas on the command line.
func TestListsOfAgents(t *testing.T) {
	for _, c := range []struct {
		source string
		given  given
		want   []string
	}{
		{"directory", given{dir: map[string]string{"labels": "k8s:a{1,3} b,c\n d"}}, []string{"k8s:a{1,3}", "b,c", "d"}},
		{"environment", given{env: map[string]string{"CILIUM_LABELS": "a,b c"}}, []string{"a,b", "c"}},
		{"file, text", given{home: map[string]string{"cilium-operators.yaml": `labels: "a,b c"`}}, []string{"a,b", "c"}},
		{"file, list", given{home: map[string]string{"cilium-operators.yaml": "labels: ['a,b', 'c d']"}}, []string{"a,b", "c d"}},
		{"command line", given{args: []string{"--labels=a,b c", "--labels=d"}}, []string{"a", "b c", "d"}},
		{"command line, quoted", given{args: []string{`--labels="k8s:a{1,3}",b`}}, []string{"k8s:a{1,3}", "b"}},
		{"nowhere", given{}, []string{"x,y"}},
	} {
		s := schema(t)
		add(t, s, "agents", agents{Labels: []string{"x,y"}})
		v, err := c.given.load(t, s)
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		value, _ := v.Struct(reflect.TypeFor[agents]())
		if got := value.Interface().(agents).Labels; !slices.Equal(got, c.want) {
			t.Errorf("from the %s: %q, want %q", c.source, got, c.want)
		}
	}
	s := schema(t)
	add(t, s, "agents", agents{})
	if _, err := (given{args: []string{`--labels="a`}}).load(t, s); err == nil || !strings.Contains(err.Error(), `--labels="\"a" (flag): `) {
		t.Errorf("an open quote: %v", err)
	}
}

// The original finds keys in any case, for viper compares them so.
func TestKeysInCapitals(t *testing.T) {
	g := given{dir: map[string]string{"Cluster-Name": "prod", "INTERVAL": "x", "Some-Agent-Key": "1", "DEBUG": "true", "debug": "false"}}
	got, v := given{dir: map[string]string{"Cluster-Name": "prod", "DEBUG": "true", "debug": "false", "Labels": "a"}}.values(t)
	if got.ClusterName != "prod" || got.Debug {
		t.Errorf("%+v", got)
	}
	if e, ok := v.Lookup("labels"); !ok || e.Value != "a" {
		t.Errorf("%+v", e)
	}
	var told []string
	for _, w := range v.Warnings {
		told = append(told, regexp.MustCompile(`\(.*\)`).ReplaceAllString(w, "()"))
	}
	want := []string{
		"key Cluster-Name () is read as cluster-name; keys are written in lower case",
		"key DEBUG () is ignored, for debug is there, too; keys are written in lower case",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	wantProblem(t, g, `--interval="x" (directory `, `INTERVAL): must be a duration`)
}

func TestElementsOfASequenceKeepTheirWhiteSpace(t *testing.T) {
	got, v := given{home: map[string]string{"cilium-operators.yaml": "cluster-pool-ipv4-cidr: ['a b', 'c,d']"}}.values(t)
	if !slices.Equal(got.Cidrs, []string{"a b", "c", "d"}) {
		t.Errorf("%q", got.Cidrs)
	}
	if e, _ := v.Lookup("cluster-pool-ipv4-cidr"); e.Value != "a b,c,d" {
		t.Errorf("%+v", e)
	}
}

func TestDefaultsAreNotShared(t *testing.T) {
	s := schema(t)
	for range 2 {
		v, err := given{}.load(t, s)
		if err != nil {
			t.Fatal(err)
		}
		if got := structOf(t, v); !reflect.DeepEqual(got, defaults) {
			t.Errorf("%+v", got)
		}
	}
}

// Writing all values down and reading them back changes nothing.
func TestEntriesRoundTrip(t *testing.T) {
	first, v := given{args: []string{
		"--eni-tags", `{"a": "b,c=d", "E": "f"}`, "--cluster-pool-ipv4-cidr", "a b,", "--interval=90s", "--node=10.0.0.1", "--pools=10.0.0.0/8 fd00::/8", "--ratio=0.1", "-D",
	}}.values(t)
	dir := map[string]string{}
	for _, e := range v.Entries() {
		if e.Name != config.DirOption && e.Name != config.FileOption {
			dir[e.Name] = e.Value
		}
	}
	again, w := given{dir: dir}.values(t)
	again.ConfigDir = first.ConfigDir
	if !reflect.DeepEqual(first, again) {
		t.Errorf("%+v became %+v", first, again)
	}
	for _, e := range w.Entries() {
		if text, ok := dir[e.Name]; ok && e.Value != text {
			t.Errorf("%s: %q became %q", e.Name, text, e.Value)
		}
	}
}

func TestEntries(t *testing.T) {
	_, v := given{args: []string{"--cluster-id=7"}}.values(t)
	entries := v.Entries()
	if !slices.IsSortedFunc(entries, func(a, b config.Entry) int { return strings.Compare(a.Name, b.Name) }) || len(entries) != 12 {
		t.Errorf("%+v", entries)
	}
	e, _ := v.Lookup("cluster-id")
	if e.Value != "7" || e.Default != "1" || e.Module != "m" || e.Option == nil || e.AtDefault() {
		t.Errorf("%+v", e)
	}
	if e, _ := v.Lookup("interval"); !e.AtDefault() {
		t.Errorf("%+v", e)
	}
}

func TestNearMisses(t *testing.T) {
	dir := map[string]string{"cluster-nmae": "x", "cluster-pool-ipv4-cdr": "x", "enable-ipv4": "true", "intervall": "1m", "debugs-on": "x", "ratios": "x"}
	_, v := given{dir: dir}.values(t)
	var keys []string
	for _, w := range v.Warnings {
		key, _, _ := strings.Cut(strings.TrimPrefix(w, "key "), " ")
		keys = append(keys, key)
		if !strings.Contains(w, "(directory ") || !strings.Contains(w, "is not an option of this operator; did you mean ") {
			t.Error(w)
		}
	}
	if diff := cmp.Diff([]string{"cluster-nmae", "cluster-pool-ipv4-cdr", "intervall", "ratios"}, keys); diff != "" {
		t.Error(diff)
	}
	problems := given{dir: dir, args: []string{"--strict-config"}}.problems(t)
	if len(problems) != 4 || !strings.Contains(problems[0].String(), "cluster-nmae") || !strings.Contains(problems[3].String(), "ratios") {
		t.Error(problems)
	}
	dir["strict-config"] = "true"
	if problems := (given{dir: dir}).problems(t); len(problems) != 4 {
		t.Error(problems)
	}
}

func TestFlagsOfAReplacedModule(t *testing.T) {
	s := schema(t)
	if err := s.Ignore("new", func(fs *pflag.FlagSet) {
		fs.StringP("old-option", "D", "x", "")
		fs.Int("cluster-id", 5, "") // declared anew
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Ignore("new", func(*pflag.FlagSet) { panic("whoops") }); err == nil {
		t.Error("flags that cannot be declared are accepted")
	}
	v, err := given{args: []string{"--old-option=anything"}}.load(t, s)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := v.Lookup("old-option")
	if e.Value != "anything" || !e.Option.Ignored || !e.Option.Hidden || e.Module != "new" {
		t.Errorf("%+v", e)
	}
	if o := s.Option("cluster-id"); o.Ignored || o.Module != "m" {
		t.Errorf("%+v", o)
	}
	v, err = given{dir: map[string]string{"old-option": "x"}}.load(t, s)
	if err != nil || len(v.Unknown()) > 0 || len(v.Warnings) > 0 {
		t.Errorf("%v, %v, %v", err, v.Unknown(), v.Warnings)
	}
}

// deprecated has an option that is on its way out.
type deprecated struct{ Old string }

func (d deprecated) Flags(fs *pflag.FlagSet) {
	fs.String("old", "", "")
	_ = fs.MarkDeprecated("old", "use new")
}

func TestDeprecatedOptionsAreNamedWhereverTheyAreSet(t *testing.T) {
	s := config.NewSchema()
	add(t, s, "m", deprecated{})
	for _, g := range []given{{args: []string{"--old=x"}}, {env: map[string]string{"CILIUM_OLD": "x"}}} {
		v, err := g.load(t, s)
		if err != nil || len(v.Warnings) != 1 || !strings.HasSuffix(v.Warnings[0], "is deprecated: use new") {
			t.Errorf("%v, %q", err, v.Warnings)
		}
	}
	if v, _ := (given{}).load(t, s); len(v.Warnings) > 0 {
		t.Error(v.Warnings)
	}
	if !s.FlagSet("x").Lookup("old").Hidden {
		t.Error("help shows it")
	}
}

func TestFlagSet(t *testing.T) {
	fs := schema(t).FlagSet("operator")
	usage := fs.FlagUsages()
	for _, want := range []string{"-D, --debug", "--interval duration", "(default 1m0s)", "(default 10.0.0.0/8)", "--eni-tags stringToString"} {
		if !strings.Contains(usage, want) {
			t.Errorf("help does not show %q:\n%s", want, usage)
		}
	}
	if err := fs.Parse([]string{"--unknown"}); err == nil {
		t.Error("unknown flags are accepted")
	}
}

// What is wrong with a declaration.

func errorsOf(c any, flags func(*pflag.FlagSet)) string {
	var texts []string
	for _, err := range config.NewSchema().Add("m", reflect.ValueOf(c), flags) {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "\n")
}

func TestMistakesOfADeclaration(t *testing.T) {
	field := func(fs *pflag.FlagSet) { fs.String("field", "", "") }
	type embedded struct{ Field string }
	for _, c := range []struct {
		name   string
		config any
		flags  func(*pflag.FlagSet)
		want   string
	}{
		{"fine", struct{ Field string }{}, field, ""},
		{"by tag", struct {
			Other string `flag:"field"`
		}{}, field, ""},
		{"without regard to case", struct{ FIELD string }{}, field, ""},
		{"left out", struct {
			Field string
			Other chan int `flag:"-"`
			inner int
		}{}, field, ""},
		{"embedded", struct{ embedded }{}, field, ""},
		{"no field", struct{}{}, func(fs *pflag.FlagSet) { fs.String("cluster-name", "", "") },
			`flag --cluster-name has no field in struct {}; name one ClusterName or tag it flag:"cluster-name"`},
		{"no flag", struct{ Field, Other string }{}, field,
			`field struct { Field string; Other string }.Other has no flag; declare one in Flags or tag it flag:"-"`},
		{"undecodable", struct{ Field chan int }{}, field,
			"field struct { Field chan int }.Field: type chan int cannot be decoded; use a basic type, a duration, a list, a map of strings or an encoding.TextUnmarshaler"},
		{"two fields", struct {
			Field string
			FIELD string
		}{}, field, `fields Field and FIELD of struct { Field string; FIELD string } go by the same flag; tag one of them flag:"its-name"`},
		{"pointer", &struct{ Field string }{}, field, "config *struct { Field string } is no struct; pass the struct by value"},
		{"flag twice", struct{ Field string }{}, func(fs *pflag.FlagSet) { field(fs); field(fs) },
			"config struct { Field string }: declaring its flags panicked: flag redefined: field; declare each flag once"},
		{"all at once", struct{ A, B string }{}, func(fs *pflag.FlagSet) { fs.String("c", "", ""); fs.String("d", "", "") },
			`field struct { A string; B string }.A has no flag; declare one in Flags or tag it flag:"-"
field struct { A string; B string }.B has no flag; declare one in Flags or tag it flag:"-"
flag --c has no field in struct { A string; B string }; name one C or tag it flag:"c"
flag --d has no field in struct { A string; B string }; name one D or tag it flag:"d"`},
	} {
		if diff := cmp.Diff(c.want, errorsOf(c.config, c.flags)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestDuplicateFlagsAndShorthands(t *testing.T) {
	s := config.NewSchema()
	one := func(fs *pflag.FlagSet) { fs.StringP("a", "x", "", "") }
	if errs := s.Add("first", reflect.ValueOf(struct{ A string }{}), one); len(errs) > 0 {
		t.Fatal(errs)
	}
	errs := s.Add("second", reflect.ValueOf(struct{ A int }{}), one)
	dup := new(config.DuplicateError)
	if len(errs) != 1 || !errors.As(errs[0], &dup) || *dup != (config.DuplicateError{Flag: "a", First: "first", Second: "second"}) {
		t.Error(errs)
	}
	errs = s.Add("third", reflect.ValueOf(struct{ B string }{}), func(fs *pflag.FlagSet) { fs.StringP("b", "x", "", "") })
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "flag --b has the shorthand -x, which is that of --a") {
		t.Error(errs)
	}
	s.FlagSet("does not panic")
	if diff := cmp.Diff([]string{"a"}, s.Names()); diff != "" {
		t.Error(diff)
	}
}

func TestProblemOfAValidator(t *testing.T) {
	_, v := given{env: map[string]string{"CILIUM_CLUSTER_ID": "300"}}.values(t)
	if got := v.Problem("cluster-id", "must be at most 255").String(); got != `--cluster-id="300" (environment CILIUM_CLUSTER_ID): must be at most 255` {
		t.Error(got)
	}
}
