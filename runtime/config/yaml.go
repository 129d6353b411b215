// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// yamlDecoder reads YAML. A key without a value is left out.
type yamlDecoder struct{}

func (yamlDecoder) Decode(text []byte, into map[string]any) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	if len(doc.Content) == 0 {
		return nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: must be a mapping of keys to values", top.Line)
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if _, twice := into[key.Value]; twice {
			return fmt.Errorf("line %d: %s is there twice", key.Line, key.Value)
		}
		if value.Tag == "!!null" {
			continue
		}
		raw, err := rawNode(value)
		if err != nil {
			return fmt.Errorf("line %d: %s %w", value.Line, key.Value, err)
		}
		into[key.Value] = lined{raw, value.Line}
	}
	return nil
}

func rawNode(n *yaml.Node) (Raw, error) {
	switch n.Kind {
	case yaml.AliasNode:
		return rawNode(n.Alias)
	case yaml.ScalarNode:
		return Raw{Text: n.Value}, nil
	case yaml.SequenceNode:
		r := Raw{List: make([]string, 0, len(n.Content))}
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return Raw{}, errNested
			}
			r.List = append(r.List, c.Value)
		}
		return r, nil
	case yaml.MappingNode:
		r := Raw{Map: make(map[string]string, len(n.Content)/2)}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i+1].Kind != yaml.ScalarNode {
				return Raw{}, errNested
			}
			r.Map[n.Content[i].Value] = n.Content[i+1].Value
		}
		return r, nil
	}
	return Raw{}, errNested
}

var errNested = errors.New("must be a single value, a list of them or a mapping to them")
