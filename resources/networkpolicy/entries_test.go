// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"runtime"
	"strings"
	"testing"
)

// VALID-25, K3 of the contract's tenants.md: a rule with very many empty entries, which are a hundred times as large in memory, is a finding.
func TestRulesOfManyEntries(t *testing.T) {
	empty := "[" + strings.Repeat("{},", 480_000) + "{}]"
	for name, text := range map[string]string{
		"egress":    `{"endpointSelector":{},"egress":` + empty + `}`,
		"ingress":   `{"endpointSelector":{},"ingress":` + empty + `}`,
		"ports":     `{"endpointSelector":{},"egress":[{"toPorts":` + empty + `}]}`,
		"selectors": `{"endpointSelector":{},"ingress":[{"fromEndpoints":` + empty + `}]}`,
		"of HTTP":   `{"endpointSelector":{},"ingress":[{"toPorts":[{"rules":{"http":` + empty + `}}]}]}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var r Rule
		if err := r.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 || !r.undecoded {
			t.Errorf("%s: %d MiB are allocated, and it is decoded: %v", name, used>>20, !r.undecoded)
		}
	}
	var r Rule
	if err := r.UnmarshalJSON([]byte(`{"endpointSelector":{},"ingress":[` + strings.Repeat(`{"fromEntities":["all"]},`, 40_000) + `{}]}`)); err != nil || r.undecoded {
		t.Errorf("40,001 entries: %v", err)
	}
}
