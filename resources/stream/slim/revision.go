// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"fmt"
	"strconv"
)

// Revision is a resourceVersion as a number. API servers number the writes of
// one kind in rising order, so Revisions of one stream can be compared. Zero
// means none.
type Revision uint64

// ParseRevision reads a resourceVersion. The empty string is zero.
func ParseRevision(s string) (Revision, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion %q is not a number: %w", s, err)
	}
	return Revision(n), nil
}

// String returns the resourceVersion, "" for zero.
func (r Revision) String() string {
	if r == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(r), 10)
}

// MarshalText implements encoding.TextMarshaler.
func (r Revision) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Revision) UnmarshalText(text []byte) (err error) {
	var n Revision
	for _, c := range text {
		if c < '0' || c > '9' || len(text) > 19 { // 19 digits cannot overflow
			*r, err = ParseRevision(string(text))
			return err
		}
		n = n*10 + Revision(c-'0')
	}
	*r = n
	return nil
}
