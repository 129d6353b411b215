// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package stockchart gives tests what the original's Helm chart renders.
package stockchart

import (
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Role is the role that the original's chart gives its operator. It skips the
// test where the chart's output is not at hand.
func Role(t testing.TB) []rbacv1.PolicyRule {
	t.Helper()
	return RoleOf(t, "default")
}

// RoleOf is Role with other values of the chart.
func RoleOf(t testing.TB, values string) []rbacv1.PolicyRule {
	t.Helper()
	folder := os.Getenv("SKEP_CONFORMANCE_DIR")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "shared", "conformance") // beside the repository
	}
	file, err := os.Open(filepath.Join(folder, "chart-1.17", values+".yaml"))
	if err != nil {
		t.Skipf("the chart's output is not at hand: %v; SKEP_CONFORMANCE_DIR names the folder that has it", err)
	}
	defer file.Close()
	for docs := yaml.NewYAMLOrJSONDecoder(file, 1<<20); ; {
		var role rbacv1.ClusterRole
		if err := docs.Decode(&role); err != nil {
			t.Fatalf("no role of the operator in %s: %v", file.Name(), err)
		}
		if role.Kind == "ClusterRole" && role.Name == "cilium-operator" {
			return role.Rules
		}
	}
}
