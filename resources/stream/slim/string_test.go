// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"strconv"
	"testing"
	"unsafe"
)

func TestStringsShareTheirBytes(t *testing.T) {
	in, other := NewInterner(), NewInterner()
	bytes := []byte("node-1")
	all := []String{MakeString("node-1"), in.Intern(bytes), in.Intern(bytes), other.Intern(bytes)}
	if err := json.Unmarshal([]byte(`"node-1"`), &all[0]); err != nil {
		t.Fatal(err)
	}
	clear(bytes) // they are not kept
	for i, s := range all {
		if s != all[0] || s.String() != "node-1" || unsafe.StringData(s.String()) != unsafe.StringData(all[0].String()) {
			t.Errorf("string %d is %q with bytes of its own", i, s)
		}
	}
	if MakeString("node-2") == all[0] {
		t.Error("node-2 equals node-1")
	}
}

func TestEmptyStringIsZero(t *testing.T) {
	var decoded String
	if err := decoded.UnmarshalText(nil); err != nil {
		t.Fatal(err)
	}
	for _, s := range []String{{}, MakeString(""), NewInterner().Intern(nil), decoded} {
		if s != (String{}) || s.String() != "" {
			t.Errorf("%q is not the zero String", s)
		}
	}
}

// More texts than the interner has slots push each other out, no more.
func TestInternerSlotsAreShared(t *testing.T) {
	in := NewInterner()
	for range 2 {
		for i := range 3 * len(in.slots) {
			if text := strconv.Itoa(i); in.Intern([]byte(text)).String() != text {
				t.Fatalf("%s was interned as another text", text)
			}
		}
	}
}

// What an object costs is counted in words of these.
func TestSizes(t *testing.T) {
	for what, size := range map[string][2]uintptr{
		"String":     {unsafe.Sizeof(String{}), 8},
		"Labels":     {unsafe.Sizeof(Labels{}), 8},
		"Owner":      {unsafe.Sizeof(Owner{}), 8},
		"NamedPorts": {unsafe.Sizeof(NamedPorts{}), 8},
		"Revision":   {unsafe.Sizeof(Revision(0)), 8},
		"Time":       {unsafe.Sizeof(Time(0)), 8},
		"UID":        {unsafe.Sizeof(UID{}), 24},
		"Addr":       {unsafe.Sizeof(Addr{}), 24},
		"Meta":       {unsafe.Sizeof(Meta{}), 56},
	} {
		if size[0] != size[1] {
			t.Errorf("a %s takes %d bytes, want %d", what, size[0], size[1])
		}
	}
}
