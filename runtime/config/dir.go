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
)

// readDir reads a config directory: every regular file, or symbolic link to
// one, is a key. A file that cannot be read is named in a warning and left out.
func readDir(dir string) (found map[string]entry, warnings []string, err error) {
	list, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		//lint:ignore ST1005 the wording that users know
		return nil, nil, fmt.Errorf("Non-existent configuration directory %s", dir)
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
