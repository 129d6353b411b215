// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// configFile is the etcd client configuration of a remote cluster.
type configFile struct {
	path    string
	content string // empty while it cannot be read
}

// directory is the mounted directory as it was read.
type directory struct {
	files    map[string]configFile // by cluster
	unusable []error               // files that look like configurations, and are none
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// readDirectory reads the configurations of a directory. Files of other kinds, such as certificates, are left out; one that
// was a configuration before, which known reports, stays one.
func readDirectory(path, ownName string, known func(cluster string) bool) (directory, error) {
	d := directory{files: map[string]configFile{}}
	entries, err := os.ReadDir(path)
	if err != nil {
		return d, fmt.Errorf("read the directory of --clustermesh-config: %w", err)
	}
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		if info, err := os.Stat(file); e.Name()[0] == '.' || errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		content, err := os.ReadFile(file)
		switch name := e.Name(); {
		case name == ownName:
		case known(name), err == nil && isClientConfig(content) && len(name) <= 32 && validName.MatchString(name):
			d.files[name] = configFile{file, string(content)}
		case err == nil && isClientConfig(content):
			d.unusable = append(d.unusable, fmt.Errorf("%s: %q is no name of a cluster: those are at most 32 lower-case letters, digits and dashes", path, name))
		}
	}
	return d, nil
}

// isClientConfig reports whether a file is meant as an etcd client configuration.
func isClientConfig(content []byte) bool { return bytes.Contains(content, []byte("endpoints:")) }
