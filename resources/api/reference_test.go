// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api_test

import (
	stdjson "encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/api"
)

// release is a release of cilium-operator with the definitions that it registers, and our edition for its agents.
type release struct {
	version string
	edition api.Edition
}

// releases are those that we have definitions of, oldest first.
var releases = []release{
	{"1.17", api.Edition{Label: "1.30.8"}},
	{"1.18", api.Edition{Label: "1.31.11"}},
	{"1.19", api.Edition{Label: "1.32.6", Admission: api.Admission{RefuseRequires: true, RefuseIdleServiceOptions: true}}},
	{"1.20", api.Edition{Label: "1.33.9", Admission: api.Admission{
		RefuseRequires: true, RefuseKafka: true, RequireSpec: true, FixMaskSize: true, RefuseIdleServiceOptions: true,
	}}},
}

// newest is the release whose validation ours has.
var newest = releases[len(releases)-1]

// retyped are the only paths that are of another type in ours: these lists hold selectors up to 1.18, and are of
// strings and always empty from 1.19 on.
var retyped = []string{"ingress[].fromRequires[]", "ingressDeny[].fromRequires[]", "egress[].toRequires[]", "egressDeny[].toRequires[]"}

// TestReferencePaths looks for each path of each release, in every version that the release serves, in ours.
func TestReferencePaths(t *testing.T) {
	all := &comparison{}
	for _, r := range releases {
		c := &comparison{}
		for name, theirs := range referenceDefinitions(t, r.version) {
			c.definition(theirs, definitionNamed(t, name, r.edition))
		}
		t.Logf("%s: %d of %d paths, in every version, exist with the same type", r.version, c.found, c.paths)
		for _, found := range c.differences {
			if found.What == missing {
				t.Errorf("%s: %s is missing", r.version, found.Path)
			}
		}
		excepted := 0
		for _, path := range c.retyped {
			if isRequires(path) {
				excepted++
			} else {
				t.Errorf("%s: %s is of another type", r.version, path)
			}
		}
		t.Logf("%s: %d of another type, which are the items of fromRequires and toRequires", r.version, excepted)
		if c.found+excepted != c.paths {
			t.Errorf("%s: %d paths are missing or of another type", r.version, c.paths-c.found-excepted)
		}
		all.paths, all.found = all.paths+c.paths, all.found+c.found
	}
	t.Logf("all: %d of %d paths", all.found, all.paths)
}

func isRequires(path string) bool {
	return slices.ContainsFunc(retyped, func(suffix string) bool { return strings.HasSuffix(path, "."+suffix) })
}

// TestReference compares what our definitions say with those of the newest release that has the kind.
// Every difference is in testdata/differences.yaml, and every difference in there exists.
func TestReference(t *testing.T) {
	c := &comparison{}
	for name, last := range lastReleases(t) {
		c.definition(referenceDefinitions(t, last.version)[name], definitionNamed(t, name, last.edition))
	}
	t.Logf("%d differences", len(c.differences))
	judge(t, c.differences, "testdata/differences.yaml")
}

// lastReleases returns the newest release of each definition.
func lastReleases(t *testing.T) map[string]release {
	last := map[string]release{}
	for _, r := range releases {
		for name := range referenceDefinitions(t, r.version) {
			last[name] = r
		}
	}
	if len(last) != len(api.Kinds()) {
		t.Errorf("the releases have %d definitions, ours are %d", len(last), len(api.Kinds()))
	}
	return last
}

// TestReferenceIsAccepted holds the editions of the older releases against their definitions: where ours says more than
// theirs, an object may be refused that agents take. Each such place is in testdata/narrower.yaml.
func TestReferenceIsAccepted(t *testing.T) {
	var found []difference
	for _, r := range releases {
		for name, theirs := range referenceDefinitions(t, r.version) {
			n := &narrowing{}
			n.definition(theirs, definitionNamed(t, name, r.edition))
			found = append(found, n.differences...)
		}
	}
	t.Logf("%d keywords are narrower", len(found))
	judge(t, found, "testdata/narrower.yaml")
}

// reviewedDifference is a difference that we want, and why.
// A path that begins with * stands for all that end so, words that end in ... for all that begin so.
type reviewedDifference struct {
	difference
	Reason string `json:"reason"`
}

func (r reviewedDifference) covers(d difference) bool {
	suffix, many := strings.CutPrefix(r.Path, "*")
	words, cut := strings.CutSuffix(r.What, "...")
	same := d.What == r.What || cut && strings.HasPrefix(d.What, words)
	return same && (d.Path == r.Path || many && strings.HasSuffix(d.Path, suffix))
}

// judge demands that a file reviews all differences, and nothing else.
func judge(t *testing.T, differences []difference, file string) {
	t.Helper()
	reviewed := reviewedDifferences(t, file)
	seen := map[difference]bool{}
	for _, found := range differences {
		covered := slices.ContainsFunc(reviewed, func(r reviewedDifference) bool { return r.covers(found) })
		if !covered && !seen[found] {
			t.Errorf("not reviewed: %s: %s", found.Path, found.What)
		}
		seen[found] = true
	}
	for _, listed := range reviewed {
		if !slices.ContainsFunc(differences, listed.covers) {
			t.Errorf("reviewed, but no longer so: %s: %s", listed.Path, listed.What)
		}
	}
}

func reviewedDifferences(t *testing.T, file string) []reviewedDifference {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var listed []reviewedDifference
	if err := yaml.UnmarshalStrict(text, &listed); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, entry := range listed {
		if entry.Reason == "" {
			t.Errorf("%s: no reason is given for %s: %s", file, entry.Path, entry.What)
		}
		if entry.What == missing {
			t.Errorf("%s: no reason is good enough for %s to be missing", file, entry.Path)
		}
	}
	return listed
}

// definitionOf returns our definition of a kind as it is sent to an API server.
func definitionOf(t *testing.T, name string, edition api.Edition) tree {
	t.Helper()
	kind, known := api.KindNamed(name)
	if !known {
		t.Fatalf("there is no kind %s", name)
	}
	crd, err := kind.CRD(edition)
	if err != nil {
		t.Fatal(err)
	}
	return asJSON(t, crd)
}

// asJSON is a value as clients write it.
func asJSON(t *testing.T, value any) tree {
	t.Helper()
	text, err := stdjson.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return parseJSON(t, "what was encoded", text)
}

// definitionNamed is definitionOf by the name of the definition.
func definitionNamed(t *testing.T, name string, edition api.Edition) tree {
	t.Helper()
	for _, kind := range api.Kinds() {
		if kind.CRDName() == name {
			return definitionOf(t, kind.Name, edition)
		}
	}
	t.Fatalf("%s is missing", name)
	return nil
}

// referenceTexts are the files that were read, as JSON. To read YAML takes most of the time of many tests.
var referenceTexts sync.Map

func readYAML(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return yaml.YAMLToJSONStrict(text)
}

// referenceDefinitions returns the definitions of a release by name.
// It skips the test where the reference is not at hand.
func referenceDefinitions(t *testing.T, version string) map[string]tree {
	t.Helper()
	definitions := map[string]tree{}
	for _, file := range referenceFiles(t, version) {
		read, _ := referenceTexts.LoadOrStore(file, sync.OnceValues(func() ([]byte, error) { return readYAML(file) }))
		text, err := read.(func() ([]byte, error))()
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		definition := parseJSON(t, file, text)
		definitions[at(definition, "metadata", "name").(string)] = definition
	}
	return definitions
}

// referenceFiles returns the files of the definitions of a release. Where it has an index, this names them.
func referenceFiles(t *testing.T, version string) []string {
	t.Helper()
	folder := os.Getenv("SKEP_CONFORMANCE_DIR")
	if folder == "" {
		// Beside the root of the repository, which is two folders above this package.
		folder = filepath.Join("..", "..", "..", "shared", "conformance")
	}
	files, err := filepath.Glob(filepath.Join(folder, "crds-"+version, "*", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("no reference definitions in %s; SKEP_CONFORMANCE_DIR names the folder that has them in crds-%s", folder, version)
	}
	index, err := os.ReadFile(filepath.Join(folder, "crds-"+version, "index.yaml"))
	if os.IsNotExist(err) {
		return files
	}
	if err != nil {
		t.Fatal(err)
	}
	files = nil
	for _, file := range asTree(parse(t, "index.yaml", index)["definitions"]) {
		files = append(files, filepath.Join(folder, file.(string)))
	}
	return files
}

// parse decodes YAML or JSON, whole numbers as int64 as an API server does.
func parse(t *testing.T, name string, text []byte) tree {
	t.Helper()
	text, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return parseJSON(t, name, text)
}

func parseJSON(t *testing.T, name string, text []byte) tree {
	t.Helper()
	var object tree
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &object); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return object
}
