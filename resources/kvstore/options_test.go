// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"errors"
	"github.com/skep-operator/skep/runtime/cell"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// KV-C3.
func TestOptions(t *testing.T) {
	t.Parallel()
	o := parsed(t, map[string]string{"etcd.address": "http://a:1"})
	want := options{address: "http://a:1", keepAlive: 15 * time.Second, keepAliveTimeout: 25 * time.Second, qps: 20, inFlight: 20, pageSize: 256, growPages: true}
	if o != want { // KV-E1 and KV-E2
		t.Errorf("got %+v, want %+v", o, want)
	}
	o = parsed(t, map[string]string{
		"etcd.config": "/f", "etcd.qps": "100", "etcd.limit": "0", "etcd.keepaliveHeartbeat": "1s",
		"etcd.keepaliveTimeout": "2s", "etcd.bootstrapQps": "10000", "etcd.operator": "true",
	})
	want = options{file: "/f", keepAlive: time.Second, keepAliveTimeout: 2 * time.Second, qps: 100, inFlight: 100}
	if o != want {
		t.Errorf("got %+v, want %+v", o, want)
	}
	for _, c := range []struct {
		values map[string]string
		want   []string
	}{
		{nil, []string{"etcd.address or etcd.config"}},                                                   // KV-E5
		{map[string]string{"etcd.adress": "x"}, []string{`"etcd.adress"`, "did you mean etcd.address?"}}, // KV-E3
		{map[string]string{"consul.address": "x"}, []string{`"consul.address"`, "known are etcd.address, etcd.bootstrapQps"}},
		{map[string]string{"etcd.address": "x", "etcd.qps": "fast", "etcd.limit": "-1"}, []string{"etcd.qps=fast: must be a number of at least 1", "etcd.limit=-1"}}, // KV-E4
		{map[string]string{"etcd.address": "x", "etcd.keepaliveTimeout": "soon"}, []string{"etcd.keepaliveTimeout=soon: must be a duration"}},
		{map[string]string{"etcd.address": "x", "etcd.maxInflight": "0"}, []string{"etcd.maxInflight=0"}},
	} {
		_, errs := parseOptions(c.values)
		err := errors.Join(errs...)
		for _, part := range c.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v: %v, want %q in it", c.values, err, part)
			}
		}
	}
}

func parsed(t *testing.T, values map[string]string) options {
	t.Helper()
	o, errs := parseOptions(values)
	check(t, errors.Join(errs...))
	return o
}

// KV-C4 and KV-C5.
func TestFile(t *testing.T) {
	t.Parallel()
	c := must(parseFile([]byte("endpoints: [https://a:1]\nca-file: x\nauto-sync-interval: 5000000000\nmax-unary-retries: 3\nreject-old-cluster: true\n")))(t)
	if c.AutoSyncInterval != 5*time.Second || c.MaxUnaryRetries != 3 || !c.RejectOldCluster || !c.secure() {
		t.Errorf("got %+v", c)
	}
	for text, want := range map[string]string{
		"endpoint: [https://a:1]":                 `unknown key "endpoint": did you mean endpoints?`,
		"endpoints: [https://a:1]\ncer-file: x":   `did you mean cert-file?`,
		"endpoints: [https://a:1]\ntrusted-ca: x": `unknown key "trusted-ca"`,
		"endpoints: 7":                            "endpoints",
		"\t":                                      "", "[]": "",
		"endpoints: [https://a:1]\nendpoints: [https://b:1]": "already",
	} {
		if _, err := parseFile([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"username: x":                            "no endpoints",
		"endpoints: [https://a:1, http://b:1]":   "all http or all https",
		"endpoints: [ftp://a:1]":                 "no URL",
		"endpoints: [https://a:1]\ncert-file: x": "need each other",
		"endpoints: [https://]":                  "no URL",
	} {
		c, err := parseFile([]byte(text))
		check(t, err)
		if err := c.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
	for text, want := range map[string]bool{
		"endpoints: [https://a:1]": true, "endpoints: [http://a:1]": false, "endpoints: ['a:1']": true,
		"{endpoints: ['a:1'], insecure-transport: true}":       false,
		"{endpoints: [https://a:1], insecure-transport: true}": true,
	} {
		if c := must(parseFile([]byte(text)))(t); c.secure() != want {
			t.Errorf("%q: secure is %v", text, c.secure())
		}
	}
}

// Numbers 17 and 18 of the contract's kvstore.md; KV-C2 and KV-C4: what can never work is found before anything starts; what may come
// later is not.
func TestValidate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad, lacking := filepath.Join(dir, "bad"), filepath.Join(dir, "lacking")
	check(t, os.WriteFile(bad, []byte("endpoint: []"), 0o600))
	check(t, os.WriteFile(lacking, []byte("{endpoints: [https://a:1], trusted-ca-file: "+dir+"/nope}"), 0o600))
	for what, c := range map[string]struct {
		change func(*Config)
		flag   string
	}{
		"a bad file":               {func(c *Config) { c.KVStoreOpt = map[string]string{"etcd.config": bad} }, "kvstore-opt"},
		"no file yet":              {func(c *Config) { c.KVStoreOpt = map[string]string{"etcd.config": dir + "/nope"} }, ""},
		"a file without another":   {func(c *Config) { c.KVStoreOpt = map[string]string{"etcd.config": lacking} }, ""},
		"no address":               {func(c *Config) { c.KVStoreOpt = nil }, "kvstore-opt"},
		"a TTL that agents fear":   {func(c *Config) { c.KVStoreLeaseTTL = 24 * time.Second }, "kvstore-lease-ttl"},
		"a TTL of 10 seconds":      {func(c *Config) { c.KVStoreLeaseTTL = 10 * time.Second }, "25s"},
		"a TTL of a day":           {func(c *Config) { c.KVStoreLeaseTTL = 24 * time.Hour }, ""},
		"an interval of old":       {func(c *Config) { c.KVStorePeriodicSync = 5 * time.Minute }, ""},
		"a TTL of more than a day": {func(c *Config) { c.KVStoreLeaseTTL = 25 * time.Hour }, "kvstore-lease-ttl"},
		"a negative interval":      {func(c *Config) { c.KVStorePeriodicSync = -1 }, "kvstore-periodic-sync"},
		"defaults":                 {func(*Config) {}, ""},
	} {
		config := DefaultConfig
		config.KVStoreOpt = map[string]string{"etcd.address": "a:1"}
		c.change(&config)
		err := cell.ValidateConfig(config)
		if (err == nil) != (c.flag == "") || err != nil && !strings.Contains(err.Error(), c.flag) {
			t.Errorf("%s: %v, want it about %q", what, err, c.flag)
		}
	}
	if _, err := readFile(lacking); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that names one that is not there: %v", err)
	}
}

// KV-C3: pages grow while keys are small, unless their size is set.
func TestNextPage(t *testing.T) {
	t.Parallel()
	byDefault, _ := parseOptions(map[string]string{"etcd.address": "x"})
	set, _ := parseOptions(map[string]string{"etcd.address": "x", "etcd.limit": "256"})
	for _, c := range []struct {
		of                options
		keys, bytes, want int
	}{
		{byDefault, 256, 256 * 200, pageBytes / 200},
		{byDefault, 256, 256 * 10, maxPage},
		{byDefault, 256, 256 * 16 << 10, 256},
		{byDefault, 256, 256 << 20, 4},
		{set, 256, 256 << 20, 4},
		{byDefault, 1, 8 << 20, 1},
		{byDefault, 0, 0, 256},
		{set, 256, 256 * 10, 256},
	} {
		if got := c.of.nextPage(c.keys, c.bytes); got != c.want {
			t.Errorf("after %d keys of %d bytes: %d, want %d", c.keys, c.bytes, got, c.want)
		}
	}
}
