// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"strings"
	"testing"
	"time"
)

// crate is an object that can be cut.
type crate struct {
	Meta  `json:"metadata"`
	Cut   `json:"-"`
	Items []string `json:"items"`
}

// CutDown implements Cutter.
func (c *crate) CutDown() { c.Items = nil }

func TestCutDown(t *testing.T) {
	c := &crate{Items: []string{"a"}}
	if c.IsCut() || c.CutError() != nil || CutOf(c) != (Cut{}) {
		t.Errorf("it is cut: %v", c.CutError())
	}
	if !CutDown(c, 3<<20) || !c.IsCut() || c.Items != nil || CutOf(c) != c.Cut || !strings.Contains(c.CutError().Error(), "3072 KiB") {
		t.Errorf("it is %+v, %v", c, c.CutError())
	}
	if CutDown(&identity{}, 1) || CutOf(&identity{}) != (Cut{}) {
		t.Error("what has no Cut can be cut")
	}
}

// The size of an object is that of the texts, the elements and the pointers that it has, each counted where it is.
func TestSizeOf(t *testing.T) {
	type inner struct {
		Text string
		Next *inner
	}
	type outer struct {
		Inner  inner
		List   []inner
		Bytes  []byte
		Map    map[string]string
		Any    any
		Time   time.Time
		Shared String
		Array  [2]string
	}
	base := SizeOf(&outer{})
	word := 8
	for what, test := range map[string]struct {
		of   outer
		want int
	}{
		"a text":                {outer{Inner: inner{Text: "1234"}}, 4},
		"a pointer":             {outer{Inner: inner{Next: &inner{Text: "1"}}}, 3*word + 1},
		"elements and texts":    {outer{List: []inner{{Text: "1"}, {}}}, 2*3*word + 1},
		"room of a list":        {outer{List: make([]inner, 0, 5)}, 5 * 3 * word},
		"bytes":                 {outer{Bytes: make([]byte, 7)}, 7},
		"a map":                 {outer{Map: map[string]string{"12": "345"}}, 2*2*2*word + 5},
		"an interface":          {outer{Any: inner{Text: "12"}}, 3*word + 2},
		"a time":                {outer{Time: time.Now()}, 0},
		"a text that is shared": {outer{Shared: MakeString("123")}, 2*word + 3},
		"an array":              {outer{Array: [2]string{"1", "23"}}, 3},
	} {
		if got := SizeOf(&test.of) - base; got != test.want {
			t.Errorf("%s: %d bytes, and it is %d", what, got, test.want)
		}
	}
}
