// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// readDir reads a config directory: every regular file, or symbolic link to
// one, is a key. What cannot be read is named in warnings and skipped.
func readDir(dir string) (found map[string]entry, warnings []string, err error) {
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("Non-existent configuration directory %s", dir) //nolint:staticcheck // the wording users know
	case err != nil:
		return nil, nil, fmt.Errorf("reading configuration directory: %w", err)
	}
	found = make(map[string]entry, len(list))
	for _, d := range list {
		path := filepath.Join(dir, d.Name())
		info, err := os.Stat(path) // follows links
		if err == nil && !info.Mode().IsRegular() {
			continue
		}
		var text []byte
		if err == nil {
			text, err = os.ReadFile(path)
		}
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("key %s is left out: %v", d.Name(), err))
			continue
		}
		found[d.Name()] = entry{Raw{Text: strings.TrimSpace(string(text))}, Source{FromDir, path}}
	}
	return found, warnings, nil
}

// readFile reads the config file at path, or, where path is empty, the one of
// the given name in the home directory. It returns nil where there is none to
// be read.
func readFile(path, name string) (map[string]entry, error) {
	if path == "" && name == "" {
		return nil, nil
	}
	// Keys are never nested and never split: the delimiter cannot occur.
	v := viper.NewWithOptions(viper.KeyDelimiter("\x00"), viper.WithDecoderRegistry(textDecoders{viper.NewCodecRegistry()}))
	if path != "" {
		v.SetConfigFile(path)
	} else {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, nil // no home, no file
		}
		v.AddConfigPath(home)
		v.SetConfigName(name)
	}
	if err := v.ReadInConfig(); err != nil {
		if errors.As(err, new(viper.ConfigFileNotFoundError)) && path == "" {
			return nil, nil
		}
		return nil, fmt.Errorf("reading config file: %w", err)
	}
	found := map[string]entry{}
	for _, key := range v.AllKeys() {
		value, ok := v.Get(key).(lined)
		if !ok {
			continue
		}
		where := v.ConfigFileUsed()
		if value.line > 0 {
			where = fmt.Sprintf("%s:%d", where, value.line)
		}
		found[key] = entry{value.Raw, Source{FromFile, where}}
	}
	return found, nil
}

// lined is a raw value with its line. Viper passes it through untouched, where
// it would lower-case the keys of a map and turn 007 into 7.
type lined struct {
	Raw
	line int
}

// textDecoders keep values as the text that stands in the file.
type textDecoders struct{ known viper.DecoderRegistry }

func (d textDecoders) Decoder(format string) (viper.Decoder, error) {
	switch format {
	case "yaml", "yml", "json":
		return yamlDecoder{}, nil
	}
	inner, err := d.known.Decoder(format)
	if err != nil {
		return nil, err
	}
	return plainDecoder{inner}, nil
}

// yamlDecoder reads YAML, and JSON as the part of YAML that it is.
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
		raw, err := rawNode(value)
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", value.Line, key.Value, err)
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
		if n.Tag == "!!null" {
			return Raw{}, nil
		}
		return Raw{Text: n.Value}, nil
	case yaml.SequenceNode:
		r := Raw{List: make([]string, 0, len(n.Content))}
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return Raw{}, errors.New("must be a list of single values")
			}
			r.List = append(r.List, c.Value)
		}
		return r, nil
	case yaml.MappingNode:
		r := Raw{Map: make(map[string]string, len(n.Content)/2)}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i+1].Kind != yaml.ScalarNode {
				return Raw{}, errors.New("must be a mapping to single values")
			}
			r.Map[n.Content[i].Value] = n.Content[i+1].Value
		}
		return r, nil
	}
	return Raw{}, errors.New("cannot be read as a value")
}

// plainDecoder serves the formats that viper decodes itself.
type plainDecoder struct{ inner viper.Decoder }

func (d plainDecoder) Decode(text []byte, into map[string]any) error {
	values := map[string]any{}
	if err := d.inner.Decode(text, values); err != nil {
		return err
	}
	for key, value := range values {
		into[key] = lined{Raw: rawPlain(value)}
	}
	return nil
}

func rawPlain(value any) Raw {
	switch value := value.(type) {
	case []any:
		r := Raw{List: make([]string, 0, len(value))}
		for _, e := range value {
			r.List = append(r.List, fmt.Sprint(e))
		}
		return r
	case map[string]any:
		r := Raw{Map: make(map[string]string, len(value))}
		for k, e := range value {
			r.Map[k] = fmt.Sprint(e)
		}
		return r
	}
	return Raw{Text: fmt.Sprint(value)}
}
