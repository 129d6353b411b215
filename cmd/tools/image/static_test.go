// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStatic refuses what would not run in an image that has nothing else in it.
func TestStatic(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	build(t, at("amd64"), "amd64")
	build(t, at("arm64"), "arm64")
	build(t, at("pie"), "amd64", "-buildmode=pie")
	if err := os.WriteFile(at("script"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ file, architecture, says string }{
		{"amd64", "amd64", ""},
		{"arm64", "arm64", ""},
		{"arm64", "amd64", "is for EM_AARCH64, not for amd64"},
		{"amd64", "riscv64", "not for riscv64"},
		{"pie", "amd64", "is not static"},
		{"script", "amd64", "is no program for Linux"},
		{"missing", "amd64", "no such file"},
	} {
		t.Run(test.file+" as "+test.architecture, func(t *testing.T) {
			err := checkStatic(at(test.file), test.architecture)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("it says %v, want %q", err, test.says)
			}
		})
	}
}
