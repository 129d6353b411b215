// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestManifestsAreReadInOrder(t *testing.T) {
	objects, err := readManifests(manifests)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, object := range objects {
		if kind := object.GetKind(); len(kinds) == 0 || kinds[len(kinds)-1] != kind {
			kinds = append(kinds, kind)
		}
	}
	if first, last := kinds[0], kinds[len(kinds)-1]; first != "Namespace" || last != "CiliumNode" {
		t.Errorf("namespaces come first and CiliumNodes last, got %v", kinds)
	}
}

func TestManifestsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := readManifests(dir); err == nil || !strings.Contains(err.Error(), "no *.yaml in "+dir) {
		t.Errorf("an empty directory: %v", err)
	}
	file := filepath.Join(dir, "broken.yaml")
	if err := os.WriteFile(file, []byte("kind: {"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readManifests(dir); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a broken file: %v", err)
	}
}
