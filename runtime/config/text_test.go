// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"maps"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestSplitList(t *testing.T) {
	for text, want := range map[string][]string{
		"":                    nil,
		"  ":                  nil,
		"a":                   {"a"},
		"a,b":                 {"a", "b"},
		"a, b ,c":             {"a", "b", "c"},
		"a b\tc\n d":          {"a", "b", "c", "d"},
		"a b,c d":             {"a b", "c d"}, // a comma anywhere: white space belongs to the elements
		"a b,":                {"a b"},
		",,a,,":               {"a"},
		"10.0.0.0/8 fd00::/8": {"10.0.0.0/8", "fd00::/8"},
	} {
		if got := splitList(text); !slices.Equal(got, want) {
			t.Errorf("splitList(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestParseMap(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":                              {},
		"  ":                            {},
		"a=b":                           {"a": "b"},
		"a=b,c=d":                       {"a": "b", "c": "d"},
		" a = b , c = d ":               {"a": "b", "c": "d"},
		"a=b,c,d=e":                     {"a": "b,c", "d": "e"}, // what has no = belongs to the value before
		"a=b=c":                         {"a": "b=c"},
		"a=":                            {"a": ""},
		"A.b/c=D":                       {"A.b/c": "D"},
		"a=1,a=2":                       {"a": "2"},
		`{"Name": "x", "a.b": "y,z=1"}`: {"Name": "x", "a.b": "y,z=1"},
		` {"n": 007.5, "b": true} `:     nil,
		`{"n": 7.50, "b": true}`:        {"n": "7.50", "b": "true"},
		`{}`:                            {},
		"a":                             nil,
		"a,b=c":                         nil,
		`{"a": {"b": "c"}}`:             nil,
		`{"a": ["b"]}`:                  nil,
		`{"a": null}`:                   nil,
		`{"a": "b"} c`:                  nil,
		`{"a": "b"`:                     nil,
		`{a: b}`:                        nil,
	} {
		got, err := parseMap(text)
		if (err != nil) != (want == nil) || !maps.Equal(got, want) {
			t.Errorf("parseMap(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
}

func FuzzParseMap(f *testing.F) {
	for _, s := range []string{"", "a=b", "a=b,c,d=e", `{"a": "b"}`, "=", "a= b ", "a=b,,c", "{=", `a="b,c=d"`, " a = , b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := parseMap(s)
		if err != nil || !utf8.ValidString(s) { // JSON, in which some maps are written, knows no others
			return
		}
		text := formatMap(m)
		again, err := parseMap(text)
		if err != nil || !maps.Equal(again, m) {
			t.Errorf("%q is %q, written as %q it is %q, %v", s, m, text, again, err)
		}
	})
}

func FuzzSplitList(f *testing.F) {
	for _, s := range []string{"", "a", "a,b", "a b", "a b,c", ",", " , a b , "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list := splitList(s)
		text := formatList(list)
		if again := splitList(text); !slices.Equal(again, list) {
			t.Errorf("%q is %q, written as %q it is %q", s, list, text, again)
		}
		for _, e := range list {
			if e == "" {
				t.Errorf("%q has an empty element", s)
			}
		}
	})
}

// colour writes itself through its pointer only.
type colour struct{ name string }

func (c *colour) UnmarshalText(text []byte) error { c.name = string(text); return nil }
func (c *colour) MarshalText() ([]byte, error)    { return []byte(c.name), nil }

type word string

// TestFormatDecodesToTheSame decodes texts, writes the value down, decodes that
// and compares.
func TestFormatDecodesToTheSame(t *testing.T) {
	for _, c := range []struct {
		of    any
		texts []string
	}{
		{"", []string{"", "007", "a,b", " x ", "true"}},
		{word(""), []string{"x"}},
		{false, []string{"true", "false", "1", "0", "t", "f", "T", "FALSE"}},
		{0, []string{"0", "-7", "007", "9223372036854775807"}},
		{int8(0), []string{"-128", "127"}},
		{uint16(0), []string{"65535", "0"}},
		{0.0, []string{"0.1", "1e100", "-3", "2.50"}},
		{float32(0), []string{"0.1"}},
		{time.Duration(0), []string{"1m30s", "0", "0s", "1h", "-5ms", "1.5h"}},
		{[]string{}, []string{"", "a", "a,b", "a b", "a b,", "a b,c"}},
		{[]int{}, []string{"1,2", "1 2"}},
		{[]time.Duration{}, []string{"1s,2m"}},
		{[]word{}, []string{"a b c"}},
		{[]netip.Prefix{}, []string{"10.0.0.0/8 fd00::/8", "10.0.0.0/8"}},
		{map[string]string{}, []string{"", "a=b", "a=b,c,d=e", `{"a": "b,c=d", "e": " f "}`, `{"": "x,y"}`}},
		{map[word]word{}, []string{"a=b"}},
		{netip.Addr{}, []string{"10.0.0.1", "fe80::1%eth0", ""}},
		{netip.Prefix{}, []string{"10.0.0.0/8", ""}},
		{big.Int{}, []string{"123456789012345678901234567890"}},
		{colour{}, []string{"red"}},
		{[]colour{}, []string{"red,green"}},
	} {
		typ := reflect.TypeOf(c.of)
		decode, err := decoderOf(typ)
		if err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		for _, text := range c.texts {
			first, again := reflect.New(typ).Elem(), reflect.New(typ).Elem()
			if err := decode(Raw{Text: text}, first); err != nil {
				t.Errorf("%s of %q: %v", typ, text, err)
				continue
			}
			written := format(first)
			if err := decode(Raw{Text: written}, again); err != nil {
				t.Errorf("%s of %q is written as %q: %v", typ, text, written, err)
			} else if !reflect.DeepEqual(first.Interface(), again.Interface()) {
				t.Errorf("%s of %q is written as %q: %v became %v", typ, text, written, first, again)
			}
			if twice := format(again); twice != written {
				t.Errorf("%s of %q is written as %q, then as %q", typ, text, written, twice)
			}
		}
	}
}

func TestTypesThatCannotBeDecoded(t *testing.T) {
	for _, v := range []any{struct{}{}, &struct{}{}, [][]string{}, []map[string]string{}, map[string]int{}, map[int]string{}, make(chan int), func() {}, [2]int{}, new(int), complex(1, 1), []struct{}{}} {
		if _, err := decoderOf(reflect.TypeOf(v)); err == nil {
			t.Errorf("%T: no error", v)
		}
	}
}

func TestRawAsText(t *testing.T) {
	got := []string{
		Raw{Text: "a"}.String(), Raw{Repeated: []string{"a", "b"}}.String(), Raw{List: []string{"a b"}}.String(),
		Raw{Map: map[string]string{"b": "2", "a": "1"}}.String(), Raw{}.String(),
	}
	if diff := cmp.Diff([]string{"a", "a,b", "a b,", "a=1,b=2", ""}, got); diff != "" {
		t.Error(diff)
	}
}
