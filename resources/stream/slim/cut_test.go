// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"fmt"
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
	other := &crate{}
	if CutDown(other, 3<<20-100<<10); other.Cut != c.Cut {
		t.Errorf("a little more is another cut: %v, %v", other.CutError(), c.CutError())
	}
	for _, size := range []int{1, 31, 33, 100 << 10, 3<<20 + 1} {
		if got := roughly(size); got < size || got > size+size/16+1 {
			t.Errorf("%d bytes are roughly %d", size, got)
		}
	}
	if CutDown(&identity{}, 1) || CutOf(&identity{}) != (Cut{}) {
		t.Error("what has no Cut can be cut")
	}
}

// chest is an object whose type leaves much of it.
type chest struct {
	chestMeta `json:"metadata"`
	Cut       `json:"-"`
	Class     string   `json:"class"`
	Items     []string `json:"items"`
	Spec      struct {
		Text string   `json:"text"`
		Many []string `json:"many"`
	} `json:"spec"`
}

type chestMeta struct {
	Meta
	CreationTimestamp Time           `json:"creationTimestamp"`
	Labels            Labels         `json:"labels"`
	Annotations       Subset[filter] `json:"annotations"`
}

type filter struct{}

// Keep implements KeyFilter.
func (filter) Keep(string) bool { return true }

// CutDown implements Cutter.
func (c *chest) CutDown() {}

// Of what a type leaves the long fields go, and the ends of annotations. What names the object, its age and what is short stays.
func TestCutDropsLongFields(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	many := map[string]string{}
	for i := range 20_000 {
		many[fmt.Sprint("key-", i)] = ""
	}
	c := &chest{Class: "ours", Items: []string{long}}
	c.Name, c.CreationTimestamp, c.Spec.Text = "c", 7, "short"
	c.Spec.Many = []string{long, long}
	c.Annotations.Labels, c.Labels = MakeLabels(map[string]string{"mode": long, "class": "b"}), MakeLabels(many)
	if !CutDown(c, SizeOf(c)) || SizeOf(c) > mostLeft {
		t.Fatalf("%d bytes stay", SizeOf(c))
	}
	if c.Name != "c" || c.CreationTimestamp != 7 || c.Class != "ours" || c.Spec.Text != "short" || c.Annotations.Get("class") != "b" || len(c.Annotations.Get("mode")) != mostOfValue {
		t.Errorf("it is %+v", c)
	}
	if c.Items != nil || c.Spec.Many != nil || c.Labels != (Labels{}) || !c.IsCut() {
		t.Errorf("it has %d items, %d of the spec, %d bytes of labels", len(c.Items), len(c.Spec.Many), c.Labels.Size())
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

// A status is kept of what is cut unless it is large. Of a list the first ones are kept, in memory of their own.
func TestCutStatusAndFirst(t *testing.T) {
	small := crate{Items: []string{"a"}}
	if CutStatus(&small); len(small.Items) != 1 {
		t.Error("a small one is dropped")
	}
	large := crate{Items: []string{strings.Repeat("a", mostStatus)}}
	if CutStatus(&large); large.Items != nil {
		t.Error("a large one is kept")
	}
	all := []int{1, 2, 3}
	if got := First(all, 3); len(got) != 3 || &got[0] != &all[0] {
		t.Errorf("of three the first three are %v", got)
	}
	if got := First(all, 2); len(got) != 2 || &got[0] == &all[0] || got[1] != 2 {
		t.Errorf("of three the first two are %v", got)
	}
}

// trunk is an object whose type leaves all that there is.
type trunk struct {
	Meta   `json:"metadata"`
	Cut    `json:"-"`
	Owners []OwnerReference `json:"owners"`
	Kind   string           `json:"kind"`
}

// CutDown implements Cutter.
func (*trunk) CutDown() {}

// K8S-24: what the type of an object leaves of it is measured again: nothing that is large is kept of what is cut.
func TestCutDownMeasuresAgain(t *testing.T) {
	whole := trunk{Owners: make([]OwnerReference, 55_000), Kind: "trunk"}
	whole.Name, whole.Namespace, whole.ResourceVersion = "web", MakeString("shop"), 5
	cut := whole
	if !CutDown(&cut, 4<<20) || SizeOf(&cut) > 1<<10 || !cut.IsCut() || !strings.Contains(cut.CutError().Error(), "4096 KiB") || cut.Meta != whole.Meta {
		t.Errorf("%d bytes are kept of %v: %v", SizeOf(&cut), cut.Meta, cut.CutError())
	}
	small := trunk{Owners: make([]OwnerReference, 10), Kind: "trunk"}
	if !CutDown(&small, 4<<20) || len(small.Owners) != 10 || !small.IsCut() {
		t.Errorf("what is small is dropped: %v", small)
	}
}
