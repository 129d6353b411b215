// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/hex"
	"unique"

	"k8s.io/apimachinery/pkg/types"
)

// UID is an object's uid in 24 bytes: the 16 bytes of a UUID, or, for the rare
// uid that is none, its interned text. Comparable with ==; the zero UID is "".
type UID struct {
	uuid  [16]byte
	other unique.Handle[string]
}

// ParseUID returns the UID whose String is s, whatever s is.
func ParseUID(s string) UID {
	return parseUID([]byte(s))
}

func parseUID(s []byte) (u UID) {
	if len(s) == 0 {
		return UID{}
	}
	if !u.parse(s) {
		u = UID{other: unique.Make(string(s))}
	}
	return u
}

// parse takes the canonical lower-case form only, since a uid has to be written
// back byte by byte as it was read, and never the nil UUID, which is the zero
// UID here.
func (u *UID) parse(s []byte) bool {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return false
	}
	var digits [32]byte
	n := copy(digits[:], s[:8])
	n += copy(digits[n:], s[9:13])
	n += copy(digits[n:], s[14:18])
	n += copy(digits[n:], s[19:23])
	copy(digits[n:], s[24:])
	for _, c := range digits {
		if 'A' <= c && c <= 'F' {
			return false
		}
	}
	if _, err := hex.Decode(u.uuid[:], digits[:]); err != nil {
		return false
	}
	return u.uuid != [16]byte{}
}

// IsZero reports whether the object has no uid.
func (u UID) IsZero() bool { return u == UID{} }

// String returns the uid as the API server wrote it.
func (u UID) String() string {
	switch {
	case u.IsZero():
		return ""
	case u.other != (unique.Handle[string]{}):
		return u.other.Value()
	}
	var out [36]byte
	hex.Encode(out[:8], u.uuid[:4])
	hex.Encode(out[9:13], u.uuid[4:6])
	hex.Encode(out[14:18], u.uuid[6:8])
	hex.Encode(out[19:23], u.uuid[8:10])
	hex.Encode(out[24:], u.uuid[10:])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return string(out[:])
}

// API returns the uid as preconditions want it.
func (u UID) API() types.UID { return types.UID(u.String()) }

// MarshalText implements encoding.TextMarshaler.
func (u UID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *UID) UnmarshalText(text []byte) error {
	*u = parseUID(text)
	return nil
}
