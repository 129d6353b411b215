// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package gatewayapi reads the definitions of the Gateway API from the files of its Go module: for tests, benches and the demo,
// which run where the module is.
package gatewayapi

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

// Definitions are those of a channel, standard or experimental, by their plurals, in that order. The working directory is
// in the repository.
func Definitions(ctx context.Context, channel string, plurals ...string) ([]*unstructured.Unstructured, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the module of the Gateway API, in the repository, with go: %w", err)
	}
	var all []*unstructured.Unstructured
	for _, plural := range plurals {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "config", "crd", channel, gatewayv1.GroupName+"_"+plural+".yaml"))
		if err != nil {
			return nil, fmt.Errorf("reading the definition of %s: %w", plural, err)
		}
		d := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, d); err != nil {
			return nil, fmt.Errorf("reading the definition of %s: %w", plural, err)
		}
		delete(d.Object, "status")
		all = append(all, d)
	}
	return all, nil
}
