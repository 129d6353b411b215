// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Raw is a value as it was written, before anybody said what it is. Exactly
// one form is set: a list comes from a repeated flag or a sequence in a file,
// a map from a mapping in a file.
type Raw struct {
	Text string
	List []string
	Map  map[string]string
}

func (r Raw) String() string {
	switch {
	case r.Map != nil:
		return formatMap(r.Map)
	case r.List != nil:
		return strings.Join(r.List, ",")
	}
	return r.Text
}

// decoder sets a field from a raw value. Its error says what is allowed.
type decoder func(Raw, reflect.Value) error

var (
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func decoderOf(t reflect.Type) (decoder, error) {
	switch {
	case reflect.PointerTo(t).Implements(textType):
		return scalar(decodeText), nil
	case t == durationType:
		return scalar(decodeDuration), nil
	}
	switch t.Kind() {
	case reflect.String:
		return scalar(func(s string, v reflect.Value) error { v.SetString(s); return nil }), nil
	case reflect.Bool:
		return scalar(decodeBool), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return scalar(decodeInt), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return scalar(decodeUint), nil
	case reflect.Float32, reflect.Float64:
		return scalar(decodeFloat), nil
	case reflect.Slice:
		element, err := decoderOf(t.Elem())
		if err != nil || t.Elem().Kind() == reflect.Slice || t.Elem().Kind() == reflect.Map {
			return nil, fmt.Errorf("a list of %s cannot be decoded", t.Elem())
		}
		return func(r Raw, v reflect.Value) error { return decodeList(r, v, element) }, nil
	case reflect.Map:
		if t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.String {
			return decodeMap, nil
		}
	}
	return nil, fmt.Errorf("type %s cannot be decoded; use a basic type, a duration, a list, a map of strings or an encoding.TextUnmarshaler", t)
}

func scalar(set func(string, reflect.Value) error) decoder {
	return func(r Raw, v reflect.Value) error {
		switch {
		case r.Map != nil:
			return errors.New("must be a single value, not a mapping")
		case len(r.List) > 1:
			return errors.New("must be a single value, not a list")
		case len(r.List) == 1:
			r.Text = r.List[0]
		}
		return set(r.Text, v)
	}
}

func decodeText(s string, v reflect.Value) error {
	return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s))
}

func decodeDuration(s string, v reflect.Value) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("must be a duration such as 1m30s")
	}
	v.SetInt(int64(d))
	return nil
}

func decodeBool(s string, v reflect.Value) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("must be true or false")
	}
	v.SetBool(b)
	return nil
}

func decodeInt(s string, v reflect.Value) error {
	n, err := strconv.ParseInt(s, 10, v.Type().Bits())
	if err != nil {
		high := int64(1)<<(v.Type().Bits()-1) - 1
		return fmt.Errorf("must be a whole number from %d to %d", -high-1, high)
	}
	v.SetInt(n)
	return nil
}

func decodeUint(s string, v reflect.Value) error {
	n, err := strconv.ParseUint(s, 10, v.Type().Bits())
	if err != nil {
		return fmt.Errorf("must be a whole number from 0 to %d", ^uint64(0)>>(64-v.Type().Bits()))
	}
	v.SetUint(n)
	return nil
}

func decodeFloat(s string, v reflect.Value) error {
	f, err := strconv.ParseFloat(s, v.Type().Bits())
	if err != nil {
		return errors.New("must be a number")
	}
	v.SetFloat(f)
	return nil
}

func decodeList(r Raw, v reflect.Value, element decoder) error {
	if r.Map != nil {
		return errors.New("must be a list, not a mapping")
	}
	texts := r.List
	if texts == nil {
		texts = []string{r.Text}
	}
	var parts []string
	for _, t := range texts {
		parts = append(parts, splitList(t)...)
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
func splitList(s string) []string {
	split := strings.FieldsFuncSeq(s, unicode.IsSpace)
	if strings.Contains(s, ",") {
		split = strings.SplitSeq(s, ",")
	}
	var parts []string
	for p := range split {
		if p = strings.TrimSpace(p); p != "" {
			parts = append(parts, p)
		}
	}
	return parts
}

func decodeMap(r Raw, v reflect.Value) error {
	m := r.Map
	if m == nil {
		m = map[string]string{}
		texts := r.List
		if texts == nil {
			texts = []string{r.Text}
		}
		for _, t := range texts {
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

// parseMap reads a JSON object, or key=value pairs with commas between. A
// part without = belongs to the value before it.
func parseMap(s string) (map[string]string, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "{") {
		return parseJSONMap(s)
	}
	m := map[string]string{}
	last := ""
	for part := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(part, "=")
		switch {
		case ok:
			last = strings.TrimSpace(key)
			m[last] = strings.TrimSpace(value)
		case last != "":
			m[last] += "," + part
		case strings.TrimSpace(part) != "":
			return nil, errors.New("must be key=value pairs with commas between, or a JSON object of strings")
		}
	}
	return m, nil
}

func parseJSONMap(s string) (map[string]string, error) {
	var values map[string]any
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if err := d.Decode(&values); err != nil {
		return nil, fmt.Errorf("must be key=value pairs with commas between, or a JSON object of strings (%w)", err)
	}
	m := make(map[string]string, len(values))
	for k, v := range values {
		switch v := v.(type) {
		case string:
			m[k] = v
		case json.Number:
			m[k] = v.String()
		case bool:
			m[k] = strconv.FormatBool(v)
		default:
			return nil, fmt.Errorf("must be a JSON object of strings; %q is none", k)
		}
	}
	return m, nil
}

func formatMap(m map[string]string) string {
	parts := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, ",")
}

// format is a decoded value as text that decodes to it again.
func format(v reflect.Value) string {
	switch {
	case v.Type().Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return fmt.Sprint(v.Interface())
		}
		return string(text)
	case v.Type() == durationType:
		return v.Interface().(time.Duration).String()
	}
	switch v.Kind() {
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = format(v.Index(i))
		}
		return strings.Join(parts, ",")
	case reflect.Map:
		m := make(map[string]string, v.Len())
		for k, e := range v.Seq2() {
			m[k.String()] = e.String()
		}
		return formatMap(m)
	}
	return fmt.Sprint(v.Interface())
}
