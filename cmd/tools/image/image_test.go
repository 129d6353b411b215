// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"archive/tar"
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLayout looks at all that is in an image: what is not listed here is not there, a shell before all.
func TestLayout(t *testing.T) {
	to := filepath.Join(t.TempDir(), "image")
	if err := run(sourceOf(t), to); err != nil {
		t.Fatal(err)
	}
	all := images(t, to)
	if len(all) != len(machines) {
		t.Fatalf("%d platforms, want %d", len(all), len(machines))
	}
	for architecture, image := range all {
		t.Run(architecture, func(t *testing.T) {
			config, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			c := config.Config
			if config.OS != "linux" || config.Architecture != architecture {
				t.Errorf("it is for %s/%s", config.OS, config.Architecture)
			}
			// No user, as in the original's image: what charts mount may be readable to root alone.
			if c.User != "" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/cilium-operator"}) || !slices.Contains(c.Env, "PATH=/usr/bin:/bin") {
				t.Errorf("user %q, entry point %q, environment %q", c.User, c.Entrypoint, c.Env)
			}
			if c.Labels["org.opencontainers.image.version"] != "v1.2.3" || c.Labels["org.opencontainers.image.created"] != "2023-11-14T22:13:20Z" {
				t.Errorf("labels %q", c.Labels)
			}
			var found []string
			files(t, image, func(h *tar.Header, content io.Reader) {
				found = append(found, describe(h))
				if strings.HasSuffix(h.Name, ".crt") {
					checkCertificates(t, content)
				}
			})
			slices.SortFunc(found, func(a, b string) int { return strings.Compare(strings.Fields(a)[2], strings.Fields(b)[2]) })
			want := []string{
				"rwxr-xr-x 0:0 bin",
				"r-xr-xr-x 0:0 bin/gops",
				"rwxr-xr-x 0:0 etc",
				"rwxr-xr-x 0:0 etc/ssl",
				"rwxr-xr-x 0:0 etc/ssl/certs",
				"r--r--r-- 0:0 etc/ssl/certs/ca-certificates.crt",
				"rwxr-xr-x 0:0 licenses",
				"rwxr-xr-x 0:0 licenses/example.org",
				"r--r--r-- 0:0 licenses/example.org/LICENSE",
				"rwxr-xr-x 0:0 usr",
				"rwxr-xr-x 0:0 usr/bin",
				"r-xr-xr-x 0:0 usr/bin/cilium-operator",
				"rwxrwxrwx 0:0 usr/bin/cilium-operator-alibabacloud -> cilium-operator",
				"rwxrwxrwx 0:0 usr/bin/cilium-operator-aws -> cilium-operator",
				"rwxrwxrwx 0:0 usr/bin/cilium-operator-azure -> cilium-operator",
				"r-xr-xr-x 0:0 usr/bin/cilium-operator-generic",
				"rwxrwxrwx 0:0 usr/bin/operator -> cilium-operator",
				"rwxr-xr-x 0:0 var",
				"rwxr-xr-x 0:0 var/run",
				"trwxrwxrwx 0:0 var/run/cilium",
			}
			if !slices.Equal(found, want) {
				t.Errorf("in the image are\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func checkCertificates(t *testing.T, content io.Reader) {
	t.Helper()
	rest, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if c, err := x509.ParseCertificate(block.Bytes); err != nil || !c.IsCA {
			t.Errorf("certificate %d is no authority: %v", n, err)
		}
		n++
	}
	if n < 50 || len(rest) > 0 {
		t.Errorf("%d certificates, and %d bytes that are none", n, len(rest))
	}
}

// TestSameBytes makes an image twice, over the first one.
func TestSameBytes(t *testing.T) {
	s, to := sourceOf(t), filepath.Join(t.TempDir(), "image")
	var digests []string
	for range 2 {
		if err := run(s, to); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(to, "index.json"))
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, string(text))
	}
	if digests[0] != digests[1] {
		t.Errorf("the same programs give\n%s\nand\n%s", digests[0], digests[1])
	}
	left, err := filepath.Glob(to + ".*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q %v", left, err)
	}
}

// TestWhatIsRefused keeps the image that is there where no new one can be made.
func TestWhatIsRefused(t *testing.T) {
	s, to := sourceOf(t), filepath.Join(t.TempDir(), "image")
	if err := run(s, to); err != nil {
		t.Fatal(err)
	}
	arm64 := filepath.Join(s.programs, "linux-arm64")
	if err := os.Rename(filepath.Join(arm64, "operator-generic"), filepath.Join(arm64, "operator-other")); err != nil {
		t.Fatal(err)
	}
	if err := run(s, to); err == nil || !strings.Contains(err.Error(), "build all programs for all platforms") {
		t.Errorf("a program that is missing: %v", err)
	}
	if err := os.Rename(filepath.Join(arm64, "operator-other"), filepath.Join(arm64, "operator-generic")); err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(s.tools, "linux-arm64", "gops")
	if err := os.Remove(tool); err != nil {
		t.Fatal(err)
	}
	if err := run(s, to); err == nil || !strings.Contains(err.Error(), "build all programs for all platforms") {
		t.Errorf("a tool that is missing: %v", err)
	}
	build(t, tool, "arm64")
	build(t, filepath.Join(arm64, "operator"), "amd64")
	if err := run(s, to); err == nil || !strings.Contains(err.Error(), "not for arm64") {
		t.Errorf("a program for another platform: %v", err)
	}
	if err := os.Rename(arm64, filepath.Join(s.programs, "plan9-arm64")); err != nil {
		t.Fatal(err)
	}
	if err := run(s, to); err == nil || !strings.Contains(err.Error(), "no platform of ours") {
		t.Errorf("another platform: %v", err)
	}
	if n := len(images(t, to)); n != len(machines) {
		t.Errorf("%d platforms are left of the image that was there", n)
	}
}
