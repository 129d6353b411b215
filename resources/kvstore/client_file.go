// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"sigs.k8s.io/yaml"
)

// fileConfig is the client configuration file, in the format of etcd's own tools.
// Durations are in nanoseconds.
type fileConfig struct {
	// Its dial timeout and keep-alive times are overridden.
	clientv3.Config

	CertFile              string `json:"cert-file"`
	KeyFile               string `json:"key-file"`
	TrustedCAFile         string `json:"trusted-ca-file"`
	CAFile                string `json:"ca-file"` // ignored
	InsecureTransport     bool   `json:"insecure-transport"`
	InsecureSkipTLSVerify bool   `json:"insecure-skip-tls-verify"`
}

// load returns the client configuration. The file is read again until it is valid.
func (o options) load() (fileConfig, error) {
	if o.file != "" {
		return readFile(o.file)
	}
	c := fileConfig{Config: clientv3.Config{Endpoints: []string{o.address}}, InsecureTransport: !strings.HasPrefix(o.address, "https://")}
	return c, c.validate()
}

// readFile reads and validates a file. The error wraps fs.ErrNotExist if the file, or
// a file that it refers to, does not exist.
func readFile(path string) (fileConfig, error) {
	var c fileConfig
	data, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read the etcd client configuration: %w", err)
	}
	if c, err = parseFile(data); err == nil {
		err = c.validate()
	}
	if err != nil {
		return c, fmt.Errorf("etcd client configuration %s: %w", path, err)
	}
	return c, c.filesExist()
}

func parseFile(data []byte) (fileConfig, error) {
	var c fileConfig
	var keys map[string]json.RawMessage
	if err := yaml.Unmarshal(data, &keys); err != nil {
		return c, err
	}
	known := fileKeys()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(known, key) {
			return c, unknownKey(key, known)
		}
	}
	return c, yaml.UnmarshalStrict(data, &c)
}

// fileKeys returns the keys that a file may have.
func fileKeys() []string {
	var keys []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[fileConfig]()) {
		if key := f.Tag.Get("json"); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func (c fileConfig) validate() error {
	if len(c.Endpoints) == 0 {
		return fmt.Errorf("no endpoints")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return fmt.Errorf("cert-file and key-file need each other")
	}
	schemes := map[string]bool{}
	for _, e := range c.Endpoints {
		scheme, rest, ok := strings.Cut(e, "://")
		if !ok {
			scheme, rest = "", e
		}
		if _, err := url.Parse("//" + rest); err != nil || rest == "" || !slices.Contains([]string{"", "http", "https", "unix", "unixs"}, scheme) {
			return fmt.Errorf("endpoint %q is no URL such as https://host:2379", e)
		}
		schemes[scheme] = true
	}
	if schemes["http"] && schemes["https"] {
		return fmt.Errorf("endpoints must be all http or all https")
	}
	return nil
}

// filesExist is separate from validate: the files may be mounted later.
func (c fileConfig) filesExist() error {
	for _, f := range []string{c.CertFile, c.KeyFile, c.TrustedCAFile} {
		if f == "" || !c.secure() {
			continue
		}
		if _, err := os.Stat(f); err != nil {
			return fmt.Errorf("file referred to by the etcd client configuration: %w", err)
		}
	}
	return nil
}

// String returns the endpoints, and the user or the certificate of the client.
func (c fileConfig) String() string {
	endpoints := strings.Join(c.Endpoints, ",")
	switch {
	case c.Username != "":
		return fmt.Sprintf("%s as user %q", endpoints, c.Username)
	case c.CertFile != "" && c.secure():
		return fmt.Sprintf("%s with certificate %s", endpoints, c.CertFile)
	}
	return endpoints
}

// secure reports whether connections are encrypted.
func (c fileConfig) secure() bool {
	return !strings.HasPrefix(c.Endpoints[0], "http://") && (!c.InsecureTransport || strings.HasPrefix(c.Endpoints[0], "https://"))
}
