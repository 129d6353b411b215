// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"fmt"

	"github.com/spf13/viper"
)

// plainDecoder serves the formats that viper decodes itself, such as TOML.
type plainDecoder struct{ inner viper.Decoder }

func (d plainDecoder) Decode(text []byte, into map[string]any) error {
	values := map[string]any{}
	if err := d.inner.Decode(text, values); err != nil {
		return err
	}
	for key, value := range values {
		raw, err := rawValue(value, plainText)
		if err != nil {
			return fmt.Errorf("%s %w", key, err)
		}
		into[key] = lined{Raw: raw}
	}
	return nil
}

func plainText(v any) (string, bool) {
	switch v.(type) {
	case []any, map[string]any, nil:
		return "", false
	}
	return fmt.Sprint(v), true
}
