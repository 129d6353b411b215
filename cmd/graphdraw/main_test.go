// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestRunWrites(t *testing.T) {
	g := sample(t, "operator.json")
	for format, begin := range map[string]string{"svg": "<?xml", "html": "<!doctype html>"} {
		if out := drawn(t, g, "-format", format); !bytes.HasPrefix(out, []byte(begin)) {
			t.Errorf("-format %s begins with %.40q", format, out)
		}
	}
	if bytes.Equal(drawn(t, g), drawn(t, g, "-full")) {
		t.Error("-full changes nothing")
	}
}

func TestRunRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		in   string
		want string
	}{
		{[]string{"-format", "png"}, `{}`, "use svg or html"},
		{[]string{"graph.json"}, `{}`, "read from the standard input"},
		{[]string{"-what"}, `{}`, "-what"},
		{nil, ``, "reading a graph"},
		{nil, `{"nodes":[{"id":7}]}`, "stands in place 0"},
	} {
		err := run(t.Context(), c.args, strings.NewReader(c.in), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("graphdraw %v < %s: %v, want an error with %q", c.args, c.in, err, c.want)
		}
	}
}
