// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/operatortest"
)

// CES-E13, CES-E14 and CES-32.
func TestLimits(t *testing.T) {
	older, _, err := release.Parse("1.18")
	if err != nil {
		t.Fatal(err)
	}
	for text, steps := range map[string]map[int][2]int{
		`[{"nodes":25,"limit":16,"burst":32},{"nodes":5,"limit":5,"burst":10},{"nodes":15,"limit":11,"burst":22}]`: {
			0: {5, 10}, 5: {5, 10}, 14: {5, 10}, 16: {11, 22}, 23: {11, 22}, 24: {11, 22}, 25: {16, 32}, 1000: {16, 32}},
		`[{"nodes":0,"limit":100,"burst":500}]`: {0: {50, 100}, 5000: {50, 100}},
		defaultConfig.CESRateLimits:             {0: {10, 20}, 99: {10, 20}, 100: {50, 100}},
	} {
		l, err := Config{CESRateLimits: text, Release: older}.limits()
		if err != nil {
			t.Fatal(err)
		}
		for nodes, want := range steps {
			if limit, burst := l.at(nodes); int(limit) != want[0] || burst != want[1] {
				t.Errorf("%s with %d nodes: %v and %d, want %v", text, nodes, limit, burst, want)
			}
		}
	}
}

// CES-32; numbers 14, 17 and 19 of the contract's endpoint-slices.md: rates and modes by release.
func TestReleases(t *testing.T) {
	for name, test := range map[string]struct {
		mode       string
		given      bool
		byIdentity bool
		limit      int
	}{
		"1.17": {"identity", false, true, 50}, "1.18": {"identity", false, false, 50}, "1.19": {"identity", true, true, 100}, "1.20": {"foo", true, false, 100},
	} {
		r, _, err := release.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		c := Config{CESSliceMode: test.mode, ModeGiven: test.given, Release: r, CESRateLimits: `[{"nodes":0,"limit":100,"burst":500}]`}
		l, err := c.limits()
		if err != nil {
			t.Fatal(err)
		}
		if limit, _ := l.at(0); c.byIdentity() != test.byIdentity || int(limit) != test.limit {
			t.Errorf("%s: by identity %t, %v", name, c.byIdentity(), limit)
		}
	}
}

// CES-E14 and CES-E17, and other options that are refused at the start, where
// slices are in use.
func TestRefusedOptions(t *testing.T) {
	for arg, want := range map[string]string{
		"--ces-rate-limits=":                                        "it is empty",
		"--ces-rate-limits=ten":                                     "must be a list",
		"--ces-rate-limits=[]":                                      "at least one step",
		"--ces-rate-limits=null":                                    "at least one step",
		`--ces-rate-limits=[{"node":0}]`:                            `unknown field "node"`,
		`--ces-rate-limits=[{"nodes":0,"burst":20}]`:                "limit must be above 0",
		`--ces-rate-limits=[{"nodes":0,"limit":10}]`:                "burst at least 1",
		`--ces-rate-limits=[{"nodes":0,"limit":10,"burst":1}] more`: "nothing behind it",
		"--ces-max-ciliumendpoints-per-ces=0":                       "must be at least 1",
		"--disable-endpoint-crd":                                    "disable-endpoint-crd",
		"--ces-cleanup-grace=-1s":                                   "must be at least 100ms, or 0",
	} {
		_, err := operatortest.New(t, Cell, "", "--k8s-api-server=http://127.0.0.1:1", "--cilium-release=1.19", "--enable-cilium-endpoint-slice", arg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", arg, err, want)
		}
		if arg == "--ces-cleanup-grace=-1s" {
			continue
		}
		if _, err := operatortest.New(t, Cell, "", "--k8s-api-server=http://127.0.0.1:1", arg); err != nil {
			t.Errorf("%s matters where slices are not in use: %v", arg, err)
		}
	}
}

func TestOldModes(t *testing.T) {
	for text, byIdentity := range map[string]bool{"identity": true, "fcfs": false, "cesSliceModeIdentity": true, "cesSliceModeFCFS": false} {
		c := defaultConfig
		c.ModeGiven = true
		if c.CESSliceMode = text; c.byIdentity() != byIdentity || validate(c) != nil {
			t.Errorf("%s: by identity %t, %v", text, c.byIdentity(), validate(c))
		}
	}
}
