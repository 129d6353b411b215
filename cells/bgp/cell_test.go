// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

const unreachable = "--k8s-api-server=http://127.0.0.1:1"

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(operatortest.Resources...), celltest.InTerm("leader"),
		celltest.Args(unreachable, enabled), celltest.OffArgs(unreachable))
}

const enabled = "--enable-bgp-control-plane"

// Number A18 of the contract's bgp.md; BGP-21: what charts of 1.19 and 1.20 have in their ConfigMap, and no operator reads, refuses no start.
func TestOptionOfNoOperator(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "enable-bgp-legacy-origin-attribute"), []byte("true"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := operatortest.New(t, Cell, "", unreachable, enabled, "--config-dir="+dir); err != nil {
		t.Error(err)
	}
}

// BGP-21: options that are not valid are refused before anything starts, by name.
func TestOptions(t *testing.T) {
	const mode = "--bgp-router-id-allocation-mode=ip-pool"
	for _, test := range []struct {
		args    []string
		refused string
	}{
		{args: nil},
		{args: []string{"--bgp-router-id-allocation-ip-pool=nonsense"}}, // it is not used
		{args: []string{mode, "--bgp-router-id-allocation-ip-pool=10.0.0.0/24"}},
		{args: []string{"--bgp-secrets-namespace=kube-system"}},
		{args: []string{"--bgp-secrets-namespace=Kube/System"}, refused: "bgp-secrets-namespace"},
		{args: []string{"--bgp-router-id-allocation-mode=pool"}, refused: "bgp-router-id-allocation-mode"},
		{args: []string{mode}, refused: "bgp-router-id-allocation-ip-pool"},
		{args: []string{mode, "--bgp-router-id-allocation-ip-pool=fd00::/64"}, refused: "bgp-router-id-allocation-ip-pool"},
		{args: []string{mode, "--bgp-router-id-allocation-ip-pool=0.0.0.0/8"}, refused: "bgp-router-id-allocation-ip-pool"},
	} {
		_, err := operatortest.New(t, Cell, "", append([]string{unreachable, enabled}, test.args...)...)
		if test.refused == "" && err != nil || test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)) {
			t.Errorf("%v: %v", test.args, err)
		}
	}
}
