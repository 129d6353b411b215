// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"strings"
	"testing"
)

type part struct {
	Text  string `json:"text"`
	Count int8   `json:"count"`
}

// lax has a field of each shape that slim types have.
type lax struct {
	laxMeta   `json:"metadata"`
	Undecoded `json:"-"`
	Spec      struct {
		List   []string       `json:"list"`
		Parts  []part         `json:"parts"`
		Point  *part          `json:"point"`
		Labels Labels         `json:"labels"`
		Ports  NamedPorts     `json:"containers"`
		Node   String         `json:"node"`
		Deep   struct{ part } `json:"deep"`
	} `json:"spec"`
}

type laxMeta struct {
	Meta
	Created Time `json:"creationTimestamp"`
}

// What cannot be decoded of an object does not take the rest of it along.
func TestUndecoded(t *testing.T) {
	codec, err := JSON[lax]()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		json      string
		undecoded string // paths, with blanks between them
		holds     func(*lax) bool
	}{
		"a list of texts": {
			`{"metadata":{"name":"x"},"spec":{"list":"a","node":"n","deep":{"text":"t"}}}`, "spec.list",
			func(o *lax) bool { return o.Spec.List == nil && o.Spec.Node.String() == "n" && o.Spec.Deep.Text == "t" },
		},
		"an element of a list of texts": {
			`{"metadata":{"name":"x"},"spec":{"list":["a",7],"labels":{"a":"b"}}}`, "spec.list",
			func(o *lax) bool { return o.Spec.List == nil && o.Spec.Labels.Get("a") == "b" },
		},
		"a part of an element": {
			`{"metadata":{"name":"x"},"spec":{"parts":[{"text":"a"},{"text":7,"count":1},[]]}}`, "spec.parts[1].text spec.parts[2]",
			func(o *lax) bool {
				return len(o.Spec.Parts) == 3 && o.Spec.Parts[0].Text == "a" && o.Spec.Parts[1].Count == 1
			},
		},
		"a part of what a pointer points to": {
			`{"metadata":{"name":"x"},"spec":{"point":{"text":"t","count":300}}}`, "spec.point.count",
			func(o *lax) bool { return o.Spec.Point.Text == "t" },
		},
		"what a pointer points to": {
			`{"metadata":{"name":"x"},"spec":{"point":"t"}}`, "spec.point",
			func(o *lax) bool { return o.Spec.Point == nil },
		},
		"types that decode themselves": {
			`{"metadata":{"name":"x","creationTimestamp":"yesterday"},"spec":{"labels":{"a":1},"containers":{},"node":[],"list":["a"]}}`,
			"metadata.creationTimestamp spec.labels spec.containers spec.node",
			func(o *lax) bool { return o.Created.IsZero() && len(o.Spec.List) == 1 },
		},
		"inline": {
			`{"metadata":{"name":"x"},"spec":{"deep":{"text":1,"count":2}}}`, "spec.deep.text",
			func(o *lax) bool { return o.Spec.Deep.Count == 2 },
		},
		"all of it": {
			`{"metadata":{"name":"x","resourceVersion":"7"},"spec":"none"}`, "spec",
			func(o *lax) bool { return o.Name == "x" && o.ResourceVersion == 7 },
		},
		"what the type does not have": {
			`{"metadata":{"name":"x","labels":7},"spec":{"more":{},"list":["a"]},"status":[1]}`, "",
			func(o *lax) bool { return o.Spec.List[0] == "a" },
		},
		"null": {
			`{"metadata":{"name":"x"},"spec":{"list":null,"parts":null,"point":null,"labels":null,"node":null}}`, "",
			func(o *lax) bool { return true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var o lax
			if err := codec.DecodeJSON([]byte(test.json), &o); err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, f := range o.all() {
				paths = append(paths, f.path)
			}
			if got := strings.Join(paths, " "); got != test.undecoded || !test.holds(&o) {
				t.Errorf("undecoded are %q, want %q; the object is %+v", got, test.undecoded, o)
			}
			if err := o.DecodeError(); (err == nil) != (test.undecoded == "") || err != nil && !strings.Contains(err.Error(), paths[0]) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// needy is of no use without its metadata, and the node of its spec.
type needy struct {
	laxMeta   `json:"metadata"`
	Undecoded `json:"-"`
	Spec      struct {
		Node  string `json:"node"`
		Parts []part `json:"parts"`
	} `json:"spec"`
}

func (*needy) Needs() []string { return []string{"metadata", "spec.node"} }

// An object is kept without a part of it unless its type needs that.
func TestNeeds(t *testing.T) {
	codec, err := JSON[needy]()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"metadata":{"name":"x"},"spec":{"node":"n","parts":[{"text":7}]}}`:  "",
		`{"metadata":{"name":"x"},"spec":{"node":7}}`:                         "cannot decode spec.node: ",
		`{"metadata":{"name":"x"},"spec":7}`:                                  "cannot decode spec: ",
		`{"metadata":{"name":"x","creationTimestamp":7},"spec":{"node":"n"}}`: "cannot decode metadata.creationTimestamp: ",
	} {
		if err := codec.DecodeJSON([]byte(text), new(needy)); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestCannotDecode(t *testing.T) {
	u := Undecoded{&[]undecodedField{{path: "spec.ipam.podCIDRs"}, {path: "status"}, {path: "metadata.owners[1].uid"}}}
	for path, want := range map[string]bool{
		"spec.ipam.podCIDRs": true, "spec.ipam": true, "spec": true, "spec.ipam.podCIDRs[0]": true, "spec.ipam.pod": false,
		"spec.encryption": false, "status.ipam.error": true, "metadata": true, "metadata.owners": true, "metadata.name": false, "stat": false,
	} {
		if got := u.CannotDecode("none", path); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
	if (Undecoded{}).CannotDecode("spec") || !(Undecoded{&[]undecodedField{{path: ""}}}).CannotDecode("spec") {
		t.Error("nothing and all of it")
	}
}

// An object is kept only if it is known which one it is.
func TestUndecodedIdentity(t *testing.T) {
	codec, err := JSON[lax]()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`{"metadata":{"name":7}}`, `{"metadata":{"name":"x","namespace":{}}}`, `{"metadata":{"name":"x","uid":[]}}`,
		`{"metadata":{"name":"x","resourceVersion":"many"}}`, `{"metadata":[]}`, `[]`, `"x"`, `{`, ``,
	} {
		if err := codec.DecodeJSON([]byte(text), new(lax)); err == nil {
			t.Errorf("%s was decoded", text)
		}
		meta, err := codec.DecodeJSONMeta([]byte(text))
		if known := strings.Contains(text, `"name":"x"`) && !strings.Contains(text, "namespace"); known != (err == nil && meta.Name == "x") {
			t.Errorf("%s: its name is %q, %v", text, meta.Name, err)
		}
	}
	// Without a place for the names of fields, the object cannot be decoded.
	type strict struct {
		Meta `json:"metadata"`
		Spec part `json:"spec"`
	}
	other, err := JSON[strict]()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.DecodeJSON([]byte(`{"metadata":{"name":"x"},"spec":{"text":1}}`), new(strict)); err == nil || !strings.Contains(err.Error(), "spec.text") {
		t.Errorf("the error is %v", err)
	}
}

// What is remembered of a field is bounded.
func TestUndecodedIsBounded(t *testing.T) {
	codec, err := JSON[lax]()
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{10, maxRaw + 1} {
		var o lax
		long := strings.Repeat("x", size)
		if err := codec.DecodeJSON([]byte(`{"metadata":{"name":"x","creationTimestamp":"`+long+`"},"spec":{"list":"`+long+`"}}`), &o); err != nil {
			t.Fatal(err)
		}
		if raw := o.RawField("spec.list"); (raw != nil) != (size < maxRaw) || raw != nil && string(raw) != `"`+long+`"` {
			t.Errorf("%d bytes are kept of %d", len(raw), size)
		}
		if n := len(o.DecodeError().Error()); n > 1000 {
			t.Errorf("the error has %d bytes", n)
		}
	}
	var o lax
	if err := codec.DecodeJSON([]byte(`{"metadata":{"name":"x"},"spec":{"parts":[`+strings.Repeat("7,", 1000)+`7]}}`), &o); err != nil {
		t.Fatal(err)
	}
	if text := o.DecodeError().Error(); len(text) > 1500 || !strings.HasSuffix(text, "; and 996 more") {
		t.Error(text)
	}
}
