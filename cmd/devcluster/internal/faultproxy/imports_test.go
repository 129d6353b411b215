// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"os/exec"
	"strings"
	"testing"
)

// TestStaysCheap keeps the package's tests from compiling Kubernetes.
func TestStaysCheap(t *testing.T) {
	output, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(output)) {
		if strings.HasPrefix(name, "k8s.io/kubernetes/") {
			t.Errorf("the package depends on %s", strings.TrimSpace(name))
		}
	}
}
