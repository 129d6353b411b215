// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"bytes"
	"encoding/json"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/skep-operator/skep/runtime/printable"
)

// WriteYAML writes a value as YAML, with the names that it has as JSON. Texts that do not print are put in double quotes, where they may be escaped: no text
// of others has it fail. Keys are ours.
func WriteYAML(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	values := json.NewDecoder(bytes.NewReader(text))
	values.UseNumber()
	var plain any
	if err := values.Decode(&plain); err != nil {
		return err
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	return e.Encode(asYAML(plain))
}

// asYAML is a value of JSON as the encoder is to write it.
func asYAML(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, part := range value {
			value[key] = asYAML(part)
		}
	case []any:
		for i, part := range value {
			value[i] = asYAML(part)
		}
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: value.String()}
	case string:
		if printable.Line(value) != value {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: value}
		}
	}
	return value
}
