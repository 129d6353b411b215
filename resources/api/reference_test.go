// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/api"
)

// reviewedDifference is a difference that we want, and why.
type reviewedDifference struct {
	difference
	Reason string `json:"reason"`
}

// TestReference compares our definitions with those that cilium-operator 1.17 registers.
// Every path of the reference exists in ours; every other difference is in testdata/differences.yaml,
// and every difference in there exists.
func TestReference(t *testing.T) {
	c := &comparison{}
	reference := referenceDefinitions(t)
	for _, kind := range api.Kinds() {
		theirs, known := reference[kind.CRDName()]
		if !known {
			t.Errorf("the reference has no %s", kind.CRDName())
			continue
		}
		delete(reference, kind.CRDName())
		c.definition(theirs, definitionOf(t, kind.Name))
	}
	for name := range reference {
		t.Errorf("%s is missing", name)
	}
	t.Logf("%d of the reference's %d paths exist with the same type; %d differences", c.found, c.paths, len(c.differences))
	if c.found != c.paths {
		t.Errorf("%d paths of the reference are missing or of another type", c.paths-c.found)
	}

	reviewed := reviewedDifferences(t)
	for _, found := range c.differences {
		if !slices.Contains(reviewed, found) {
			t.Errorf("not reviewed: %s: %s", found.Path, found.What)
		}
	}
	for _, listed := range reviewed {
		if !slices.Contains(c.differences, listed) {
			t.Errorf("reviewed, but no longer so: %s: %s", listed.Path, listed.What)
		}
	}
}

func reviewedDifferences(t *testing.T) []difference {
	t.Helper()
	const file = "testdata/differences.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var listed []reviewedDifference
	if err := yaml.UnmarshalStrict(text, &listed); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var reviewed []difference
	for _, entry := range listed {
		if entry.Reason == "" {
			t.Errorf("%s: no reason is given for %s: %s", file, entry.Path, entry.What)
		}
		if entry.What == missing {
			t.Errorf("%s: no reason is good enough for %s to be missing", file, entry.Path)
		}
		reviewed = append(reviewed, entry.difference)
	}
	return reviewed
}

// definitionOf returns our definition of a kind as it is sent to an API server.
func definitionOf(t *testing.T, name string) tree {
	t.Helper()
	kind, known := api.KindNamed(name)
	if !known {
		t.Fatalf("there is no kind %s", name)
	}
	crd, err := kind.CRD()
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, name, text)
}

// referenceDefinitions returns the definitions of the reference by name.
// It skips the test where the reference is not at hand.
func referenceDefinitions(t *testing.T) map[string]tree {
	t.Helper()
	folder := os.Getenv("SKEP_CONFORMANCE_DIR")
	if folder == "" {
		// Beside the root of the repository, which is two folders above this package.
		folder = filepath.Join("..", "..", "..", "shared", "conformance")
	}
	files, err := filepath.Glob(filepath.Join(folder, "crds-1.17", "*", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("no reference definitions in %s; SKEP_CONFORMANCE_DIR names the folder that has them in crds-1.17", folder)
	}
	definitions := map[string]tree{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		definition := parse(t, file, text)
		definitions[at(definition, "metadata", "name").(string)] = definition
	}
	return definitions
}

// parse decodes YAML or JSON, whole numbers as int64 as an API server does.
func parse(t *testing.T, name string, text []byte) tree {
	t.Helper()
	text, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var object tree
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &object); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return object
}
