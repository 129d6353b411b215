// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/hive"
)

// MODE-2: modes of other binaries are refused with their names.
func TestModesOfOtherBinaries(t *testing.T) {
	for mode, want := range map[string]string{
		"alibabacloud": "", "kubernetes": "", "crd": "", "delegated-plugin": "",
		"cluster-pool": "(use cilium-operator-generic)", "eni": "(use cilium-operator-aws)", "azure": "(use cilium-operator-azure)",
		"multi-pool": "cilium-operator-alibabacloud doesn't support --ipam=multi-pool",
	} {
		h := hive.New("cilium-operator-alibabacloud", operator, hive.Environ(func(string) (string, bool) { return "", false }))
		flags := h.FlagSet()
		if err := flags.Parse([]string{"--ipam=" + mode, "--k8s-api-server=http://127.0.0.1:1"}); err != nil {
			t.Fatal(err)
		}
		err := h.Configure(flags)
		if err == nil {
			err = h.Check()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("--ipam=%s: %v, want %q", mode, err, want)
		}
	}
}
