// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// IDKV-1: which duties identities have.
func TestIdentityModes(t *testing.T) {
	const crd, kvstore, double = "identitygc.crd", "identitygc.kvstore", "doublewrite"
	for _, test := range []struct {
		mode, store string
		want        []string
	}{
		{"", "", []string{crd}},
		{"crd", "", []string{crd}},
		{"kvstore", "", []string{crd}},
		{"doublewrite-readkvstore", "", []string{crd}},
		{"doublewrite-readcrd", "", []string{crd}},
		{"", "etcd", []string{kvstore}},
		{"crd", "etcd", []string{crd}},
		{"kvstore", "etcd", []string{kvstore}},
		{"doublewrite-readkvstore", "etcd", []string{crd, kvstore, double}},
		{"doublewrite-readcrd", "etcd", []string{crd, kvstore, double}},
		{"kvstore, and off", "etcd", nil},
		{"doublewrite-readcrd, and off", "etcd", []string{double}},
		{"etcd", "etcd", nil},
		{"etcd", "", nil},
	} {
		mode, off, _ := strings.Cut(test.mode, ", ")
		values := map[string]string{"kvstore": test.store, "kvstore-opt": `{"etcd.address":"http://127.0.0.1:1"}`}
		if mode != "" {
			values["identity-allocation-mode"] = mode
		}
		if off != "" {
			values["identity-gc-interval"] = "0"
		}
		h := hive.New("cilium-operator", cells.Operator, hive.LogTo(&logtest.Buffer{}), hive.Environ(func(string) (string, bool) { return "", false }))
		flags := h.FlagSet()
		if err := flags.Parse([]string{configDir(t, values)}); err != nil {
			t.Fatal(err)
		}
		err := h.Configure(flags)
		if mode == "etcd" {
			if err = h.Build(); err == nil || !strings.Contains(err.Error(), "identity-allocation-mode") {
				t.Errorf("%s with kvstore %q: %v", mode, test.store, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s with kvstore %q: %v", mode, test.store, err)
			continue
		}
		var on []string
		for _, m := range h.Graph().Modules {
			if slices.Contains([]string{crd, kvstore, double}, m.ID) && m.Enabled {
				on = append(on, m.ID)
			}
		}
		slices.Sort(on)
		slices.Sort(test.want)
		if !slices.Equal(on, test.want) {
			t.Errorf("%s with kvstore %q: on are %v, want %v", test.mode, test.store, on, test.want)
		}
	}
}
