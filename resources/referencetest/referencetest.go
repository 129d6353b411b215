// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package referencetest finds the data of the original that tests compare with: definitions, rendered charts, and states
// that it left. They are no part of the repository; a test that asks for what is not at hand is skipped.
package referencetest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

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
