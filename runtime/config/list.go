// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

func decodeList(r Raw, v reflect.Value, element decoder) error {
	if r.Map != nil {
		return errors.New("must be a list, not a mapping")
	}
	var parts []string
	for _, t := range r.List { // white space belongs to an element of a sequence
		parts = append(parts, trimmed(strings.SplitSeq(t, ","))...)
	}
	if r.List == nil {
		for _, t := range r.texts() {
			parts = append(parts, splitList(t)...)
		}
	}
	list := reflect.MakeSlice(v.Type(), len(parts), len(parts))
	for i, p := range parts {
		if err := element(Raw{Text: p}, list.Index(i)); err != nil {
			return fmt.Errorf("element %q: %w", p, err)
		}
	}
	v.Set(list)
	return nil
}

// splitList splits on commas, or on white space where there is no comma.
// Empty elements are left out.
func splitList(s string) []string {
	if strings.Contains(s, ",") {
		return trimmed(strings.SplitSeq(s, ","))
	}
	return trimmed(strings.FieldsFuncSeq(s, unicode.IsSpace))
}

func trimmed(parts func(func(string) bool)) []string {
	var list []string
	for p := range parts {
		if p = strings.TrimSpace(p); p != "" {
			list = append(list, p)
		}
	}
	return list
}

// formatList is a list as text that splitList takes apart again.
func formatList(parts []string) string {
	text := strings.Join(parts, ",")
	if len(parts) == 1 && strings.ContainsFunc(text, unicode.IsSpace) {
		return text + "," // else it would be split on white space
	}
	return text
}
