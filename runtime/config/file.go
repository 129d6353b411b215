// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/viper"
)

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
	case "yaml", "yml":
		return yamlDecoder{}, nil
	case "json":
		return jsonDecoder{}, nil
	}
	inner, err := d.known.Decoder(format)
	if err != nil {
		return nil, err
	}
	return plainDecoder{inner}, nil
}
