// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package decl_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

type thing struct{}

func (thing) value() int    { return 1 }
func (*thing) pointer() int { return 1 }

func plain() int { return 1 }

func generic[T any]() (t T) { return t }

var literal = decl.FuncOf(func() int { return 1 }, decl.Location{})

func TestNamesAndPlacesOfFunctions(t *testing.T) {
	const here = "runtime/internal/decl_test/location_test.go"
	for _, c := range []struct {
		fn          any
		name, place string
	}{
		{plain, "decl_test.plain", here},
		{thing{}.value, "decl_test.thing.value", here},
		{(&thing{}).pointer, "decl_test.(*thing).pointer", here},
		{generic[int], "decl_test.generic", here},
		{func() {}, "func literal in decl_test.TestNamesAndPlacesOfFunctions", here},
		{strings.ToUpper, "strings.ToUpper", "strings/strings.go"},
		{nil, "?", here},
		{"no function", "?", here},
		{(func())(nil), "?", here},
	} {
		f := decl.FuncOf(c.fn, decl.Caller(-1))
		if f.Name() != c.name {
			t.Errorf("%T is called %q, want %q", c.fn, f.Name(), c.name)
		}
		file, line, _ := strings.Cut(f.Where.String(), ":")
		if file != c.place || !regexp.MustCompile(`^[1-9]\d*$`).MatchString(line) {
			t.Errorf("%s stands at %q, want %s:N", c.name, f.Where, c.place)
		}
	}
	if got := literal.Name(); got != "func literal in decl_test" {
		t.Errorf("a literal in a package variable is called %q", got)
	}
}

func TestUnknownPlace(t *testing.T) {
	if got := (decl.Location{}).String(); got != "unknown place" {
		t.Error(got)
	}
}

// declare stands for a function such as cell.Module: the place that counts is
// where it is called.
func declare() decl.Location { return decl.Caller(0) }

func TestCallerIsTheCallersLine(t *testing.T) {
	first, second := declare().String(), declare().String()
	if first != second || !strings.HasPrefix(first, "runtime/internal/decl_test/location_test.go:") {
		t.Errorf("%s, %s", first, second)
	}
}

func TestPlaceOfAStackFrame(t *testing.T) {
	for _, c := range []struct{ call, file, want string }{
		{"example.com/a/kvstore.(*client).dial(0xc000012345, 0x1)", "\t/src/kvstore/client.go:12 +0x1d", "example.com/a/kvstore/client.go:12"},
		{"example.com/a/kvstore.dial({0xc000012345, 0x1})", "\t/src/kvstore/client.go:12 +0x1d", "example.com/a/kvstore/client.go:12"},
		{"github.com/skep-operator/skep/cells/x.newX(...)", "\t/src/x.go:3", "cells/x/x.go:3"},
		{"main.main()", "\t/src/main.go:3 +0x1", "main/main.go:3"},
	} {
		if got := decl.Place(c.call, c.file); got != c.want {
			t.Errorf("Place(%q) = %q, want %q", c.call, got, c.want)
		}
	}
}

func TestJoinID(t *testing.T) {
	if got := decl.JoinID("", "ipam"); got != "ipam" {
		t.Error(got)
	}
	if got := decl.JoinID("ipam", "clusterpool"); got != "ipam.clusterpool" {
		t.Error(got)
	}
}
