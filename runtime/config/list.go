// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"encoding/csv"
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

// spacedList decodes lists that agents and the original read, too, each from its own copy of a ConfigMap: text
// is split at white space, a sequence of a file is taken as it is, and flags are split like lines of CSV. A
// comma in a ConfigMap is part of an element, such as that of the regular expression a{1,3}.
func spacedList(t reflect.Type) (decoder, error) {
	if t != reflect.TypeFor[[]string]() {
		return nil, fmt.Errorf("type %s is no list of strings", t)
	}
	return func(r Raw, v reflect.Value) error {
		parts := r.List
		switch {
		case r.Map != nil:
			return errors.New("must be a list, not a mapping")
		case r.Repeated != nil:
			for _, text := range r.Repeated {
				line, err := csvLine(text)
				if err != nil {
					return err
				}
				parts = append(parts, line...)
			}
		case r.List == nil:
			parts = strings.Fields(r.Text)
		}
		v.Set(reflect.ValueOf(parts))
		return nil
	}, nil
}

// csvLine splits the value of a flag as pflag does.
func csvLine(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	parts, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return nil, fmt.Errorf("must be a list with commas between; an element with a comma or a quote is quoted: %w", err)
	}
	return parts, nil
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
