// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package labels

import (
	"encoding/json"
	"fmt"
)

// file is a list of prefixes as agents read it.
type file struct {
	Version int `json:"version"`
	Valid   []struct {
		Source string `json:"source"`
		Prefix string `json:"prefix"`
		Invert bool   `json:"invert"`
	} `json:"valid-prefixes"`
}

// fileVersion is the only one there is.
const fileVersion = 1

// ParseFile reads the entries of a file of prefixes, which take the place of the
// default list. There may be none.
func ParseFile(data []byte) ([]Entry, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	if f.Version != fileVersion {
		return nil, fmt.Errorf("version %d is not known; it must be %d", f.Version, fileVersion)
	}
	entries := make([]Entry, 0, len(f.Valid))
	for i, v := range f.Valid {
		if v.Source == "" || v.Prefix == "" {
			return nil, fmt.Errorf("entry %d of valid-prefixes (source %q, prefix %q) needs both a source and a prefix", i+1, v.Source, v.Prefix)
		}
		text := v.Source + ":" + v.Prefix
		if v.Invert {
			text = v.Source + ":!" + v.Prefix
		}
		entries = append(entries, Entry{source: v.Source, exclude: v.Invert, prefix: v.Prefix, text: text})
	}
	return entries, nil
}
