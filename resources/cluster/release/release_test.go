// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package release

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func TestCell(t *testing.T) { celltest.Check(t, Cell) }

func TestParse(t *testing.T) {
	for version, want := range map[string]struct {
		release string
		exact   bool
	}{
		"1.17": {"1.17", true}, "v1.18.3": {"1.18", true}, "1.19.0-rc.1": {"1.19", true}, "v1.20.1": {"1.20", true},
		"1.21.0": {"1.20", false}, "2.0": {"1.20", false}, "1.16.15": {"1.17", false}, "0.9": {"1.17", false},
	} {
		if r, exact, err := Parse(version); err != nil || r.String() != want.release || exact != want.exact {
			t.Errorf("%s: %v %v %v, want %v", version, r, exact, err, want)
		}
	}
	for _, version := range []string{"", "1", "latest", "1.x", "x.1", "1.-1", "v", "main@sha256:0000"} {
		if r, _, err := Parse(version); err == nil {
			t.Errorf("%q is %v", version, r)
		}
	}
}

func TestSet(t *testing.T) {
	old, _, _ := Parse("1.18")
	both := SetOf(old).Union(SetOf(Newest()))
	if (Set{}).String() != "" || !(Set{}).Empty() || both.Empty() || both.String() != "1.20, 1.18" || !both.Has(old) || both.Has(at(2)) {
		t.Errorf("the set of both is %q", both)
	}
	for r := range both.All() {
		if r != Newest() {
			t.Errorf("the first is %s", r)
		}
		break
	}
}

func TestConfig(t *testing.T) {
	for value, problem := range map[string]string{"": "", "1.19": "", "v1.20.1": "", "newest": "must be one of 1.17, 1.18, 1.19, 1.20", "1.21": "should be one of 1.17"} {
		err := Config{CiliumRelease: value}.Validate()
		if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v, want %q", value, err, problem)
		}
	}
}

// A question that all releases answer alike is none, and each has what people read.
func TestQuestions(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Facts() {
		if len(slices.Compact(slices.Clone(f.Answers))) < 2 {
			t.Errorf("%s: all releases answer %q", f.Name, f.Answers[0])
		}
		if f.Name == "" || seen[f.Name] || !strings.HasSuffix(f.Text, "?") || f.Source == "" {
			t.Errorf("%+v: it needs a name of its own, a question and a source", f)
		}
		seen[f.Name] = true
	}
}

// The stock charts, in all configurations that are at hand, tell their release.
func TestCharts(t *testing.T) {
	for _, r := range All() {
		for file, keys := range chartsOf(t, r) {
			if found, known := ofChart(func(key string) bool { _, is := keys[key]; return is }); !known || found != r {
				t.Errorf("%s: it is taken for %v (known %v)", file, found, known)
			}
		}
	}
	for name, keys := range map[string][]string{"nothing": nil, "options of people": {"ipam", "cluster-name", "enable-lb-ipam"}} {
		if r, known := ofChart(func(key string) bool { return slices.Contains(keys, key) }); known {
			t.Errorf("%s tells %v", name, r)
		}
	}
}

// chartsOf returns the keys of the ConfigMaps of a chart, by file.
func chartsOf(t *testing.T, r Release) map[string]map[string]string {
	t.Helper()
	folder := os.Getenv("SKEP_CONFORMANCE_DIR")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "..", "shared", "conformance") // beside the repository
	}
	files, _ := filepath.Glob(filepath.Join(folder, "chart-"+r.String(), "*.yaml"))
	if len(files) == 0 {
		t.Skipf("no chart in %s; SKEP_CONFORMANCE_DIR names the folder that has chart-%v", folder, r)
	}
	found := map[string]map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---") {
			var object struct {
				Kind     string
				Metadata struct{ Name string }
				Data     map[string]string
			}
			if yaml.Unmarshal([]byte(document), &object) == nil && object.Kind == "ConfigMap" && object.Metadata.Name == "cilium-config" {
				found[file] = object.Data
			}
		}
	}
	return found
}
