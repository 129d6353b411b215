// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package labels

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// file is a label prefix file in the format of agents.
type file struct {
	Version int `json:"version"`
	Valid   []struct {
		Source string `json:"source"`
		Prefix string `json:"prefix"`
		Invert bool   `json:"invert"`
	} `json:"valid-prefixes"`
}

// fileVersion is the only supported version.
const fileVersion = 1

// ParseFile parses the entries of a label prefix file, which replace the default list.
// There may be none. Like agents it reads one JSON value; rest is the data after it.
func ParseFile(data []byte) (entries []Entry, rest []byte, err error) {
	var f file
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&f); err != nil {
		return nil, nil, err
	}
	entries, err = f.entries()
	return entries, bytes.TrimSpace(data[d.InputOffset():]), err
}

func (f file) entries() ([]Entry, error) {
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
