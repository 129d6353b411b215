// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command_test

import (
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/printable"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// API-18; K6 of the contract's tenants.md: YAML that is printed has the values that it is made of, whatever these are.
func TestYAMLStaysYAML(t *testing.T) {
	value := map[string]any{"name": "plain", "n": 3, "share": 0.5, "large": 1234567890123, "is": true, "none": nil, "list": []string{"a", "3", "true", ""}, "texts": append(printabletest.Texts, "\x7f\u009b31m😀\U0010fffd")}
	var b strings.Builder
	if err := command.WriteYAML(printable.Writer(&b), value); err != nil {
		t.Fatal(err)
	}
	printabletest.Check(t, "YAML", b.String())
	var got struct {
		Name        string
		N           int
		Share       float64
		Large       int64
		Is          bool
		None        any
		List, Texts []string
	}
	if err := yaml.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatalf("%v:\n%s", err, b.String())
	}
	if got.Name != "plain" || got.N != 3 || got.Share != 0.5 || got.Large != 1234567890123 || !got.Is || got.None != nil ||
		!reflect.DeepEqual(got.List, value["list"]) || !reflect.DeepEqual(got.Texts, value["texts"]) {
		t.Errorf("%+v is not %+v:\n%s", got, value, b.String())
	}
	if !strings.Contains(b.String(), "name: plain\n") || !strings.Contains(b.String(), "large: 1234567890123\n") {
		t.Errorf("plain values are not plain:\n%s", b.String())
	}
}
