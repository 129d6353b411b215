// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

func decodeMap(r Raw, v reflect.Value) error {
	m := r.Map
	if r.List != nil {
		return errors.New("must be a mapping, not a list")
	}
	if m == nil {
		m = map[string]string{}
		for _, t := range r.texts() {
			part, err := parseMap(t)
			if err != nil {
				return err
			}
			maps.Copy(m, part)
		}
	}
	out := reflect.MakeMapWithSize(v.Type(), len(m))
	for k, e := range m {
		out.SetMapIndex(reflect.ValueOf(k).Convert(v.Type().Key()), reflect.ValueOf(e).Convert(v.Type().Elem()))
	}
	v.Set(out)
	return nil
}

// errMap says what a map looks like.
var errMap = errors.New("must be key=value pairs with commas between, or a JSON object of strings")

// parseMap reads a JSON object, or key=value pairs with commas between. A part
// without = belongs to the value before it.
func parseMap(s string) (map[string]string, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "{") {
		return parseJSONMap(s)
	}
	m := map[string]string{}
	last, open := "", false
	for part := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(part, "=")
		switch {
		case ok:
			last, open = strings.TrimSpace(key), true
			m[last] = strings.TrimSpace(value)
		case open:
			m[last] += "," + part
		case strings.TrimSpace(part) != "":
			return nil, errMap
		}
	}
	return m, nil
}

func parseJSONMap(s string) (map[string]string, error) {
	var values map[string]any
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if err := d.Decode(&values); err != nil {
		return nil, fmt.Errorf("%w (%w)", errMap, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w (text follows the object)", errMap)
	}
	m := make(map[string]string, len(values))
	for k, v := range values {
		text, ok := jsonText(v)
		if !ok {
			return nil, fmt.Errorf("%w (%q is none)", errMap, k)
		}
		m[k] = text
	}
	return m, nil
}

// jsonText is a single JSON value as text.
func jsonText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// formatMap is a map as text that parseMap reads again: pairs where that is
// possible, else JSON.
func formatMap(m map[string]string) string {
	parts := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	text := strings.Join(parts, ",")
	if again, err := parseMap(text); err == nil && maps.Equal(again, m) {
		return text
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		return text // a map of strings always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}
