// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cidr_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/domain/cidr"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.1.0/24":          "10.0.1.0/24",
		"10.0.1.5/24":          "10.0.1.0/24",
		"10.0.1.0/024":         "10.0.1.0/24",
		"::ffff:10.0.1.0/120":  "10.0.1.0/24",
		"fd00:0:0:0:1::/80":    "fd00::1:0:0:0/80",
		"FD00::10:0:0/96":      "fd00::10:0:0/96",
		"10.0.1.0":             "",
		"010.0.1.0/24":         "",
		" 10.0.1.0/24":         "",
		"10.0.1.0/33":          "",
		"10.0.1.0/24,10.0.2.0": "",
		"":                     "",
	} {
		c, ok := cidr.Parse(text)
		if ok != (want != "") || ok && c.String() != want {
			t.Errorf("%q: %v, %t, want %q", text, c, ok, want)
		}
	}
}

func TestFind(t *testing.T) {
	for raw, want := range map[string]string{
		`"10.0.1.0/24"`:                                "10.0.1.0/24",
		`"010.0.1.0/24 and fd00::/96"`:                 "10.0.1.0/24 fd00::/96",
		`["10.0.1.0/24",7,{"10.0.2.0/24":["x",null]}]`: "10.0.1.0/24 10.0.2.0/24",
		`{"a":{"b":"10.0.1.0\/24"}}`:                   "10.0.1.0/24",
		`7`:                                            "",
		`"all of them"`:                                "",
		`{`:                                            "",
	} {
		var texts []string
		for _, c := range cidr.FindInJSON([]byte(raw)) {
			texts = append(texts, c.String())
		}
		if slices.Sort(texts); strings.Join(texts, " ") != want {
			t.Errorf("%s: %q, want %q", raw, texts, want)
		}
	}
}

func TestContains(t *testing.T) {
	p := netip.MustParsePrefix
	for _, test := range []struct {
		outer, inner string
		want         bool
	}{
		{"10.0.0.0/8", "10.1.0.0/16", true}, {"10.0.0.0/8", "10.0.0.0/8", true},
		{"10.1.0.0/16", "10.0.0.0/8", false}, {"10.0.0.0/8", "11.0.0.0/16", false}, {"::/0", "10.0.0.0/8", false},
	} {
		if got := cidr.Contains(p(test.outer), p(test.inner)); got != test.want {
			t.Errorf("%s in %s: %t", test.inner, test.outer, got)
		}
	}
}
