// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patchOf is the JSON patch that rewrites an object; empty if there is nothing to do.
func patchOf(a control.Admission, object []byte) ([]byte, error) {
	var all []json.RawMessage
	if len(a.Patch) > 0 {
		if err := json.Unmarshal(a.Patch, &all); err != nil {
			return nil, fmt.Errorf("parse the patch: %w", err)
		}
	}
	var content any
	if err := json.Unmarshal(object, &content); err != nil {
		return nil, fmt.Errorf("parse the object: %w", err)
	}
	var own []operation
	for _, pointer := range a.Drop {
		if _, there := find(content, tokensOf(pointer)); there {
			own = append(own, operation{Op: "remove", Path: pointer})
		}
	}
	for _, pointer := range pointersOf(a.Set) {
		own = append(own, set(content, pointer, a.Set[pointer]))
	}
	for _, op := range own {
		data, err := json.Marshal(op)
		if err != nil {
			return nil, fmt.Errorf("encode the patch: %w", err)
		}
		all = append(all, data)
	}
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}

func pointersOf(values map[string]any) []string { return slices.Sorted(maps.Keys(values)) }

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

func tokensOf(pointer string) []string {
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i := range tokens {
		tokens[i] = unescape.Replace(tokens[i])
	}
	return tokens
}

// find follows the tokens of a pointer.
func find(content any, tokens []string) (found any, there bool) {
	for _, token := range tokens {
		switch c := content.(type) {
		case map[string]any:
			if content, there = c[token]; !there {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(c) {
				return nil, false
			}
			content = c[i]
		default:
			return nil, false
		}
	}
	return content, true
}

// set adds a value at a pointer. The parents that are missing become part of the value.
// What is set becomes part of content, so that the next value finds its parents.
func set(content any, pointer string, value any) operation {
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/") // as they are written
	plain := tokensOf(pointer)
	at := 1
	for ; at < len(tokens); at++ {
		if _, there := find(content, plain[:at]); !there {
			break
		}
	}
	for i := len(plain) - 1; i >= at; i-- {
		value = map[string]any{plain[i]: value}
	}
	if parent, _ := find(content, plain[:at-1]); parent != nil {
		if fields, ok := parent.(map[string]any); ok {
			fields[plain[at-1]] = value
		}
	}
	return operation{Op: "add", Path: "/" + strings.Join(tokens[:at], "/"), Value: value}
}
