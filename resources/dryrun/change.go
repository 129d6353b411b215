// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// Change is a field that is not after a write what it was before.
type Change struct {
	Path string          `json:"path"`
	From json.RawMessage `json:"from,omitempty"` // absent: the field was not there
	To   json.RawMessage `json:"to,omitempty"`   // absent: it is not there any more
}

// noise are fields that servers keep: they change with every write.
var noise = map[string]bool{
	"metadata.resourceVersion": true, "metadata.generation": true, "metadata.managedFields": true,
	"metadata.uid": true, "metadata.creationTimestamp": true,
}

// changes are the fields in which two objects differ, by path. A list is one
// field.
func changes(before, after map[string]any) []Change {
	var found []Change
	compare("", before, after, &found)
	return found
}

func compare(path string, before, after map[string]any, found *[]Change) {
	keys := maps.Clone(before)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, after)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, had := before[key]
		is, has := after[key]
		at := strings.TrimPrefix(path+"."+key, ".")
		wasMap, _ := was.(map[string]any)
		isMap, _ := is.(map[string]any)
		switch {
		case noise[at] || had == has && reflect.DeepEqual(was, is):
		case wasMap != nil && isMap != nil, isMap != nil && !had, wasMap != nil && !has:
			compare(at, wasMap, isMap, found)
		default:
			*found = append(*found, Change{at, field(was, had), field(is, has)})
		}
	}
}

func field(value any, there bool) json.RawMessage {
	if !there {
		return nil
	}
	text, err := encode(value)
	if err != nil {
		return nil // not JSON: it did not come from a server
	}
	return text
}

// encode is json.Marshal without escapes for browsers.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSpace(b.Bytes()), err
}

// How much of changes a line of text has.
const (
	shownChanges = 4
	shownRunes   = 80
)

// brief is changes in one line.
func brief(all []Change) string {
	var texts []string
	for _, c := range all[:min(len(all), shownChanges)] {
		switch {
		case c.From == nil:
			texts = append(texts, fmt.Sprintf("%s: %s", c.Path, short(c.To)))
		case c.To == nil:
			texts = append(texts, fmt.Sprintf("%s: removed, was %s", c.Path, short(c.From)))
		default:
			texts = append(texts, fmt.Sprintf("%s: %s, was %s", c.Path, short(c.To), short(c.From)))
		}
	}
	if more := len(all) - shownChanges; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more fields", more))
	}
	return strings.Join(texts, "; ")
}

func short(value json.RawMessage) string {
	text := string(value)
	if utf8.RuneCountInString(text) > shownRunes {
		text = string([]rune(text)[:shownRunes-1]) + "…"
	}
	return text
}

// hidden stands for what is not told.
const hidden = "(hidden)"

// hideSecrets returns content without the values of a Secret.
func hideSecrets(content map[string]any) map[string]any {
	shown := maps.Clone(content)
	for _, values := range []string{"data", "stringData"} {
		if secret, ok := shown[values].(map[string]any); ok {
			names := map[string]any{}
			for name := range secret {
				names[name] = hidden
			}
			shown[values] = names
		}
	}
	return shown
}
