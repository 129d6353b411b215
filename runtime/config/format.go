// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// format is a value of the option as text that a file of a config directory can have.
func (o *Option) format(v reflect.Value) string {
	if list, is := reflect.TypeAssert[[]string](v); is && o.spaced {
		return strings.Join(list, " ")
	}
	return format(v)
}

// format is a decoded value as text that decodes to it again.
func format(v reflect.Value) string {
	if text, ok := marshalText(v); ok {
		return text
	}
	if v.Type() == durationType {
		return v.Interface().(time.Duration).String()
	}
	switch v.Kind() {
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = format(v.Index(i))
		}
		return formatList(parts)
	case reflect.Map:
		m := make(map[string]string, v.Len())
		for k, e := range v.Seq2() {
			m[k.String()] = e.String()
		}
		return formatMap(m)
	}
	return fmt.Sprint(v.Interface())
}

// marshalText has a value write itself, which its pointer may be needed for.
func marshalText(v reflect.Value) (string, bool) {
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	m, ok := p.Interface().(encoding.TextMarshaler)
	if !ok {
		return "", false
	}
	text, err := m.MarshalText()
	return string(text), err == nil
}
