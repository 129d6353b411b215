// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// KV-Q3: files that this process cannot read degrade the module and name the cause, and do
// not fail the health endpoint: etcd was not asked, and a restart makes nothing better.
func TestUnreadableFilesDoNotFailTheHealthEndpoint(t *testing.T) {
	dir := t.TempDir()
	noCert := filepath.Join(dir, "tls.crt")
	config := filepath.Join(dir, "etcd.config")
	key := filepath.Join(dir, "tls.key")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(key, "no key")
	write(config, fmt.Sprintf("endpoints: [https://127.0.0.1:1]\ncert-file: %s\nkey-file: %s\n", noCert, key))
	fast := func(p *connParams) { quick(p); p.Timing.checkTimeout = 50 * time.Millisecond }
	for name, c := range map[string]struct {
		setups []setup
		says   string
		fails  bool
	}{
		"the configuration": {[]setup{fast, option("etcd.config", filepath.Join(dir, "none"))}, "none: no such file", false},
		"a certificate":     {[]setup{fast, option("etcd.config", config)}, "tls.crt: no such file", false},
		"an etcd away":      {[]setup{fast, to("http://127.0.0.1:1")}, "connection refused", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHarness(t, c.setups...)
			eventually(t, "a status that names the cause", func() bool {
				err := r.Status().Err
				return err != nil && strings.Contains(err.Error(), c.says)
			})
			if err := r.health.healthErr(); (err != nil) != c.fails {
				t.Errorf("the health endpoint says %v", err)
			}
		})
	}
}

func TestUnreadableFilesAreNotReported(t *testing.T) {
	for err, fails := range map[error]bool{
		nil: false,
		fmt.Errorf("no etcd endpoint answers (%w)", &fs.PathError{Op: "open", Path: "/var/lib/etcd-secrets/tls.key", Err: fs.ErrPermission}): false,
		errors.New("3 quorum checks in a row failed"): true,
	} {
		s := healthChecker{checked: true, last: Status{Err: err}}
		if got := s.healthErr(); (got != nil) != fails {
			t.Errorf("%v: the health endpoint says %v", err, got)
		}
	}
}
