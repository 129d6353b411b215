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
	"time"

	"sigs.k8s.io/yaml"
)

// fileConfig is the client configuration in a file, as etcd's own tools read it.
// Durations are nanoseconds.
type fileConfig struct {
	Endpoints             []string `json:"endpoints"`
	Username              string   `json:"username"`
	Password              string   `json:"password"`
	CertFile              string   `json:"cert-file"`
	KeyFile               string   `json:"key-file"`
	TrustedCAFile         string   `json:"trusted-ca-file"`
	CAFile                string   `json:"ca-file"` // ignored
	InsecureTransport     bool     `json:"insecure-transport"`
	InsecureSkipTLSVerify bool     `json:"insecure-skip-tls-verify"`
	RejectOldCluster      bool     `json:"reject-old-cluster"`
	PermitWithoutStream   bool     `json:"permit-without-stream"`

	AutoSyncInterval      time.Duration `json:"auto-sync-interval"`
	DialTimeout           time.Duration `json:"dial-timeout"`            // ignored
	DialKeepAliveTime     time.Duration `json:"dial-keep-alive-time"`    // those of kvstore-opt hold
	DialKeepAliveTimeout  time.Duration `json:"dial-keep-alive-timeout"` // likewise
	MaxUnaryRetries       uint          `json:"max-unary-retries"`
	BackoffWaitBetween    time.Duration `json:"backoff-wait-between"`
	BackoffJitterFraction float64       `json:"backoff-jitter-fraction"`
}

// load finds out how to reach etcd. The file may change until it can be used.
func (o options) load() (fileConfig, error) {
	if o.file != "" {
		return readFile(o.file)
	}
	c := fileConfig{Endpoints: []string{o.address}, InsecureTransport: !strings.HasPrefix(o.address, "https://")}
	return c, c.check()
}

// readFile reads and checks a file. The error wraps fs.ErrNotExist if it, or a
// file that it names, is not there.
func readFile(path string) (fileConfig, error) {
	var c fileConfig
	data, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read the etcd client configuration: %w", err)
	}
	if c, err = parseFile(data); err == nil {
		err = c.check()
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

// fileKeys are the keys that a file may have.
func fileKeys() []string {
	var keys []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[fileConfig]()) {
		keys = append(keys, f.Tag.Get("json"))
	}
	return keys
}

func (c fileConfig) check() error {
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
		return fmt.Errorf("endpoints are either all http or all https: one client speaks one way")
	}
	return nil
}

// filesExist is checked apart from the rest: files may be mounted later.
func (c fileConfig) filesExist() error {
	for _, f := range []string{c.CertFile, c.KeyFile, c.TrustedCAFile} {
		if f == "" || !c.secure() {
			continue
		}
		if _, err := os.Stat(f); err != nil {
			return fmt.Errorf("file named in the etcd client configuration: %w", err)
		}
	}
	return nil
}

// secure reports whether connections are encrypted.
func (c fileConfig) secure() bool {
	return !strings.HasPrefix(c.Endpoints[0], "http://") && (!c.InsecureTransport || strings.HasPrefix(c.Endpoints[0], "https://"))
}
