// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"runtime"
	"strings"
	"testing"
)

// wide has lists and maps whose entries are large in memory.
type wide struct {
	wideMeta  `json:"metadata"`
	Undecoded `json:"-"`
	Spec      struct {
		Name  string               `json:"name"`
		List  []wideEntry          `json:"list"`
		Ports map[string]wideEntry `json:"ports"`
	} `json:"spec"`
}

type wideMeta struct{ Meta }

type wideEntry struct {
	A, B, C, D, E, F, G, H []string
}

// K3 of the contract's tenants.md: what an object has of empty entries, which are a hundred times as large in memory, is not decoded, and the rest is.
func TestManyEntriesAreNotDecoded(t *testing.T) {
	codec, err := JSON[wide]()
	if err != nil {
		t.Fatal(err)
	}
	repeated := func(entry string) string {
		return strings.TrimSuffix(strings.Repeat(entry+",", 1_500_000/(len(entry)+1)), ",")
	}
	for name, test := range map[string]struct {
		field     string
		undecoded bool
	}{
		"a list of empty ones":   {`"list":[` + repeated("{}") + `]`, true},
		"a list of none":         {`"list":[` + repeated("null") + `]`, true},
		"a map of empty ones":    {`"ports":{` + repeated(`"a":{}`) + `}`, true},
		"in lists of one":        {`"list":[{"A":["a"]},{"x":[` + repeated("{}") + `]}]`, true},
		"entries with something": {`"list":[` + repeated(`{"A":["0123456789","0123456789","0123456789"]}`) + `]`, false},
		"braces in texts":        {`"list":[{"A":["` + strings.Repeat(`{\"null`, 200_000) + `"]}]`, false},
	} {
		text := `{"metadata":{"name":"x","uid":"u","resourceVersion":"5"},"spec":{"name":"n",` + test.field + `}}`
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		o := &wide{}
		if err := codec.DecodeJSON([]byte(text), o); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if o.CannotDecode("spec") != test.undecoded || o.Name != "x" || o.Spec.Name != "n" {
			t.Errorf("%s: cannot be decoded: %v, %v", name, test.undecoded, o.DecodeError())
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
			t.Errorf("%s: %d MiB are allocated", name, used>>20)
		}
	}
}

// Of a list with many elements that cannot be decoded, not each is named.
func TestManyElementsThatCannotBeDecoded(t *testing.T) {
	codec, err := JSON[lax]()
	if err != nil {
		t.Fatal(err)
	}
	o := &lax{}
	if err := codec.DecodeJSON([]byte(`{"metadata":{"name":"x"},"spec":{"node":"n","parts":[`+strings.Repeat("7,", 100_000)+`7]}}`), o); err != nil {
		t.Fatal(err)
	}
	if size := SizeOf(o); !o.CannotDecode("spec.parts") || o.Spec.Parts != nil || o.Spec.Node.String() != "n" || size > 256<<10 {
		t.Errorf("%d bytes are kept: %v", size, o.DecodeError())
	}
}
