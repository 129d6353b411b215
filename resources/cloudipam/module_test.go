// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
)

// What a vendor gets wrong in a declaration is said before anything runs, with the remedy and the vendor's own line.
func TestModuleOfAVendor(t *testing.T) {
	newProvider := func(d *outside.Door) cloudipam.Provider {
		return cloudtest.NewProvider(cloudtest.NewCloud("10.0.0.0/24"), d)
	}
	fjord := func(mode, server string) cell.Cell {
		return cloudipam.Module("ipam.fjord", "Allocates addresses of Fjord", mode, server, newProvider)
	}
	for name, test := range map[string]struct {
		mode    string
		process []cell.Cell
		duty    cell.Cell
		want    []string
	}{
		"good": {"", []cell.Cell{cloudipam.Cell}, fjord("eni", "fjord"), nil},
		"a mode that agents do not know": {
			"kubernetes", []cell.Cell{cloudipam.Cell}, fjord("fjord", "fjord"),
			[]string{`serves the IPAM mode "fjord", and --ipam is never that`, "use a mode that agents know: cluster-pool, multi-pool,", "module_test.go:"},
		},
		"a server of two words": {"", []cell.Cell{cloudipam.Cell}, fjord("eni", "Fjord Cloud"), []string{`the server "Fjord Cloud", which is no name for metrics`, "use one word in lower case"}},
		"without the options":   {"", nil, fjord("eni", "fjord"), []string{"add cloudipam.Cell to the process, with With(cloudipam.Cell)"}},
		"in the process": {
			"", []cell.Cell{cloudipam.Cell, fjord("eni", "fjord")}, cell.Module("duty", "Does nothing"),
			[]string{`module ipam.fjord: only modules of the leader's term may write: add the module with WithInTerm("leader")`},
		},
	} {
		_, err := operatortest.Setup{Process: test.process}.New(t, test.duty, "", "--ipam="+cmp.Or(test.mode, "eni"), "--k8s-api-server=http://127.0.0.1:1")
		text := ""
		if err != nil {
			text = err.Error()
		}
		if (err == nil) != (test.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range test.want {
			if !strings.Contains(text, part) {
				t.Errorf("%s: want %q:\n%s", name, part, text)
			}
		}
		if strings.Contains(text, "stream.Provide") {
			t.Errorf("%s: streams of the engine are not a vendor's to provide:\n%s", name, text)
		}
	}
}
