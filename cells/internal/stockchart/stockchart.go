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

	"github.com/skep-operator/skep/resources/referencetest"
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
	return RoleIn(t, "1.17", values)
}

// RoleIn is RoleOf in a release, such as 1.20.
func RoleIn(t testing.TB, release, values string) []rbacv1.PolicyRule {
	t.Helper()
	file, err := os.Open(filepath.Join(referencetest.Folder(t, "chart-"+release), values+".yaml"))
	if err != nil {
		t.Fatal(err)
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
