// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"hash/maphash"
	"unique"
)

// String is an interned string: one word, whose bytes are shared by all equal
// Strings of the process and freed with the last of them. Use it for fields
// with few distinct values (node names, phases, kinds). The zero String is "".
// Strings are comparable with ==.
type String struct{ h unique.Handle[string] }

// MakeString interns s.
func MakeString(s string) String {
	if s == "" {
		return String{}
	}
	return String{unique.Make(s)}
}

// String returns the text.
func (s String) String() string {
	if s == (String{}) {
		return ""
	}
	return s.h.Value()
}

// MarshalText implements encoding.TextMarshaler.
func (s String) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *String) UnmarshalText(text []byte) error {
	*s = MakeString(string(text))
	return nil
}

// An Interner speeds up the interning of bytes that were interned shortly
// before: a fixed number of slots in front of the process-wide table, so it
// cannot grow. It is not safe for concurrent use; one decoding goroutine owns
// it.
type Interner struct {
	seed    maphash.Seed
	slots   *[1 << 11]unique.Handle[string] // made for the first string: many streams have no object
	scratch []byte
}

// NewInterner returns an empty Interner. It takes 16 KiB with its first string.
func NewInterner() *Interner { return &Interner{seed: maphash.MakeSeed()} }

// Intern returns the String with the bytes of b, which is not retained.
func (in *Interner) Intern(b []byte) String {
	if len(b) == 0 {
		return String{}
	}
	if in.slots == nil {
		in.slots = new([1 << 11]unique.Handle[string])
	}
	slot := &in.slots[maphash.Bytes(in.seed, b)%uint64(len(in.slots))]
	if *slot != (unique.Handle[string]{}) && slot.Value() == string(b) {
		return String{*slot}
	}
	*slot = unique.Make(string(b))
	return String{*slot}
}
