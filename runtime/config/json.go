// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// jsonDecoder reads JSON, numbers as they are written. A key that is null is
// left out.
type jsonDecoder struct{}

func (jsonDecoder) Decode(text []byte, into map[string]any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	line := func() int { return 1 + bytes.Count(text[:d.InputOffset()], []byte("\n")) }
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errors.Join(err, fmt.Errorf("line %d: must be an object of keys and values", line()))
	}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return fmt.Errorf("line %d: %w", line(), err)
		}
		key, at := token.(string), line()
		if _, twice := into[key]; twice {
			return fmt.Errorf("line %d: %s is there twice", at, key)
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("line %d: %s: %w", at, key, err)
		}
		if value == nil {
			continue
		}
		raw, err := rawValue(value, jsonText)
		if err != nil {
			return fmt.Errorf("line %d: %s %w", at, key, err)
		}
		into[key] = lined{raw, at}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("line %d: %w", line(), err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("line %d: text follows the object", line())
	}
	return nil
}

// rawValue is a decoded value as text again; single says how a single one
// reads.
func rawValue(value any, single func(any) (string, bool)) (Raw, error) {
	switch value := value.(type) {
	case []any:
		r := Raw{List: make([]string, 0, len(value))}
		for _, e := range value {
			text, ok := single(e)
			if !ok {
				return Raw{}, errNested
			}
			r.List = append(r.List, text)
		}
		return r, nil
	case map[string]any:
		r := Raw{Map: make(map[string]string, len(value))}
		for k, e := range value {
			text, ok := single(e)
			if !ok {
				return Raw{}, errNested
			}
			r.Map[k] = text
		}
		return r, nil
	}
	text, ok := single(value)
	if !ok {
		return Raw{}, errNested
	}
	return Raw{Text: text}, nil
}
