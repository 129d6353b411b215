// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"
)

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
	return nil, fmt.Errorf("type %s cannot be decoded", t)
}

func scalar(set func(string, reflect.Value) error) decoder {
	return func(r Raw, v reflect.Value) error {
		switch {
		case r.Map != nil:
			return errors.New("must be a single value, not a mapping")
		case r.List != nil:
			return errors.New("must be a single value, not a list")
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
	switch {
	case math.IsNaN(f), math.IsInf(f, 0):
		return errors.New("must be a finite number")
	case err != nil:
		return errors.New("must be a number")
	}
	v.SetFloat(f)
	return nil
}
