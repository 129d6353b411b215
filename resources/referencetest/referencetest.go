// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package referencetest finds the data of the original that tests compare with: definitions, rendered charts, and states
// that it left. They are no part of the repository; a test that asks for what is not at hand is skipped.
package referencetest

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// variable names the folder with the data.
const variable = "SKEP_CONFORMANCE_DIR"

// Folder returns a folder of the data, such as chart-1.20.
func Folder(t testing.TB, name string) string {
	t.Helper()
	folder := filepath.Join(root(), name)
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("%s is not at hand: %v; %s names the folder that has it", name, err, variable)
	}
	return folder
}

// root is where the data are: where the variable says, else beside the repository.
func root() string {
	if folder := os.Getenv(variable); folder != "" {
		return folder
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "shared", "conformance")
}

// Definitions returns the CustomResourceDefinitions that the original of a release registers, such as 1.20, as YAML by
// name.
func Definitions(t testing.TB, release string) map[string][]byte {
	t.Helper()
	folder := Folder(t, "crds-"+release)
	definitions := map[string][]byte{}
	for name, file := range index(t, folder) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		definitions[name] = text
	}
	return definitions
}

// State returns the objects of the namespace of a file that there were when the original of a release ended, in an order in which
// they can be created. Those that the original left are as it left them. The namespace has another name.
func State(t testing.TB, release, file, namespace string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Folder(t, "state-"+release), file))
	if err != nil {
		t.Fatal(err)
	}
	was := regexp.MustCompile(`(?m)^  kind: Namespace\n  metadata:\n    name: (\S+)$`).FindSubmatch(text)
	if was == nil {
		t.Fatalf("%s of %s has no namespace", file, release)
	}
	text = regexp.MustCompile(`\b`+regexp.QuoteMeta(string(was[1]))+`\b`).ReplaceAll(text, []byte(namespace))
	var state struct{ Inputs, Left []*unstructured.Unstructured }
	if err := yaml.Unmarshal(text, &state); err != nil {
		t.Fatalf("decoding %s of %s: %v", file, release, err)
	}
	return merge(state.Inputs, state.Left, namespace)
}

// merge returns the objects of a namespace, of two that are the same the later one.
func merge(inputs, left []*unstructured.Unstructured, namespace string) (all []*unstructured.Unstructured) {
	for _, u := range latest(slices.Concat(inputs, left)) {
		if u.GetNamespace() == namespace {
			all = append(all, u)
		}
	}
	return all
}

// latest are objects of which the last one with a name stays, in the place of the first one.
func latest(objects []*unstructured.Unstructured) (all []*unstructured.Unstructured) {
	places := map[string]int{}
	for _, u := range objects {
		id := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		if place, known := places[id]; known {
			all[place] = u
			continue
		}
		places[id] = len(all)
		all = append(all, u)
	}
	return all
}

// scenario is a file of a state.
type scenario struct {
	Inputs, Left []*unstructured.Unstructured
	Etcd         map[string]any
}

func scenarios(t testing.TB, release string, names []string) (all []scenario) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(Folder(t, "state-"+release), name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var one scenario
		if err := yaml.UnmarshalStrict(text, &one); err != nil {
			t.Fatalf("decoding %s of %s: %v", name, release, err)
		}
		all = append(all, one)
	}
	return all
}

// Whole returns all objects of scenarios that there were when the original of a release ended: the inputs, then what it made. Those
// that it left are as it left them. Where one refers to the uid of another, it has "uid of" with the kind and the name.
func Whole(t testing.TB, release string, names ...string) []*unstructured.Unstructured {
	t.Helper()
	var inputs, left []*unstructured.Unstructured
	for _, one := range scenarios(t, release, names) {
		inputs, left = append(inputs, one.Inputs...), append(left, one.Left...)
	}
	return latest(slices.Concat(inputs, left))
}

// Inputs returns the objects of scenarios that users, agents and other clusters wrote, as Whole does, without what the original made.
func Inputs(t testing.TB, release string, names ...string) (all []*unstructured.Unstructured) {
	t.Helper()
	for _, one := range scenarios(t, release, names) {
		all = append(all, one.Inputs...)
	}
	return latest(all)
}

// Keys returns what there is in the etcd of the other cluster of scenarios: texts, and what is encoded as JSON.
func Keys(t testing.TB, release string, names ...string) map[string]any {
	t.Helper()
	keys := map[string]any{}
	for _, one := range scenarios(t, release, names) {
		maps.Copy(keys, one.Etcd)
	}
	return keys
}

// Left returns an object of State, by its kind and its name.
func Left(t testing.TB, release, file, namespace, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, u := range State(t, release, file, namespace) {
		if u.GetKind() == kind && u.GetName() == name {
			return u
		}
	}
	t.Fatalf("the original of %s left no %s %s in %s", release, kind, name, file)
	return nil
}

// Content is an object without what the API server decides, and without its namespace, for comparisons.
func Content(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	for _, field := range []string{"namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	owners := u.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = ""
	}
	u.SetOwnerReferences(owners)
	return u.Object
}

// index returns the files of the definitions of a folder. An index names those that are the same as in an older release.
func index(t testing.TB, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	text, err := os.ReadFile(filepath.Join(folder, "index.yaml"))
	if os.IsNotExist(err) {
		found, _ := filepath.Glob(filepath.Join(folder, "*", "*.yaml"))
		for _, file := range found {
			files[strings.TrimSuffix(filepath.Base(file), ".yaml")+".cilium.io"] = file
		}
		return files
	}
	var listed struct {
		Definitions map[string]string `json:"definitions"`
	}
	if err == nil {
		err = yaml.Unmarshal(text, &listed)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range listed.Definitions {
		files[name] = filepath.Join(filepath.Dir(folder), file)
	}
	return files
}
