// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"reflect"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func fromJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := utiljson.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// K8S-8: a response shows a change if each field that was set has its value, and each that
// was removed is gone. What the API server adds, leaves out or spells in its own way is
// no difference.
func TestWhichResponsesShowAChange(t *testing.T) {
	for name, test := range map[string]struct {
		before, sent, stored string
		subresource          string
		whole                bool
		field                string // that is not shown, "" if all are
	}{
		"as sent":                   {`{}`, `{"spec":{"a":1}}`, `{"spec":{"a":1}}`, "", false, ""},
		"with defaults":             {`{}`, `{"spec":{"a":1}}`, `{"spec":{"a":1,"b":2},"status":{"c":3}}`, "", false, ""},
		"dropped":                   {`{}`, `{"spec":{"a":1}}`, `{"spec":{}}`, "", false, "spec.a"},
		"dropped with its map":      {`{}`, `{"spec":{"ipam":{"podCIDRs":["x"]}}}`, `{}`, "", false, "spec.ipam.podCIDRs"},
		"another value":             {`{}`, `{"spec":{"a":1}}`, `{"spec":{"a":2}}`, "", false, "spec.a"},
		"another type":              {`{}`, `{"spec":{"a":1}}`, `{"spec":{"a":"1"}}`, "", false, "spec.a"},
		"a map in its place":        {`{}`, `{"spec":{"a":1}}`, `{"spec":{"a":{}}}`, "", false, "spec.a"},
		"a number as float":         {`{}`, `{"spec":{"a":1}}`, `{"spec":{"a":1.0}}`, "", false, ""},
		"a quantity":                {`{}`, `{"spec":{"cpu":"1000m"}}`, `{"spec":{"cpu":"1"}}`, "", false, ""},
		"a time":                    {`{}`, `{"spec":{"at":"2024-01-01T01:00:00+01:00"}}`, `{"spec":{"at":"2024-01-01T00:00:00Z"}}`, "", false, ""},
		"another time":              {`{}`, `{"spec":{"at":"2024-01-01T01:00:00Z"}}`, `{"spec":{"at":"2024-01-01T00:00:00Z"}}`, "", false, "spec.at"},
		"empty is left out":         {`{}`, `{"spec":{"a":[],"b":{},"c":"","d":0,"e":false,"f":null,"g":{"h":[]}}}`, `{}`, "", false, ""},
		"not empty":                 {`{"spec":{"a":["x"]}}`, `{"spec":{"a":[]}}`, `{"spec":{"a":["x"]}}`, "", false, "spec.a"},
		"null asks for default":     {`{}`, `{"spec":{"a":null}}`, `{"spec":{"a":5}}`, "", false, ""},
		"removed":                   {`{"spec":{"a":1,"b":2}}`, `{"spec":{"a":1}}`, `{"spec":{"a":1}}`, "", false, ""},
		"not removed":               {`{"spec":{"a":1,"b":2}}`, `{"spec":{"a":1}}`, `{"spec":{"a":1,"b":2}}`, "", false, "spec.b"},
		"removed, has a default":    {`{"spec":{"b":2}}`, `{"spec":{}}`, `{"spec":{"b":1}}`, "", false, ""},
		"removed, back, others set": {`{"spec":{"b":2}}`, `{"spec":{"a":1}}`, `{"spec":{"a":1,"b":2}}`, "", false, ""},
		"a label is back":           {`{"metadata":{"name":"x","labels":{"b":"2"}}}`, `{"metadata":{"name":"x"},"spec":{"a":1}}`, `{"metadata":{"labels":{"b":"2"}},"spec":{"a":1}}`, "", false, "metadata.labels"},
		"a map was emptied":         {`{"spec":{"m":{"a":1}}}`, `{"spec":{"m":{}}}`, `{"spec":{}}`, "", false, ""},
		"a map was not emptied":     {`{"spec":{"m":{"a":1,"b":2}}}`, `{"spec":{"m":{}}}`, `{"spec":{"m":{"b":2}}}`, "", false, "spec.m"},
		"a list":                    {`{"l":["x"]}`, `{"l":["x","y"]}`, `{"l":["x","y"]}`, "", false, ""},
		"a list lost one":           {`{"l":["x"]}`, `{"l":["x","y"]}`, `{"l":["x"]}`, "", false, "l"},
		"a list got one":            {`{"l":[]}`, `{"l":["x"]}`, `{"l":["x","y"]}`, "", false, "l"},
		"a list in other order":     {`{"l":[]}`, `{"l":["x","y"]}`, `{"l":["y","x"]}`, "", false, "l"},
		"defaults in a list":        {`{}`, `{"l":[{"a":1},{"a":2}]}`, `{"l":[{"a":1,"b":0},{"a":2,"b":0}]}`, "", false, ""},
		"a sidecar":                 {`{}`, `{"l":[{"a":1}]}`, `{"l":[{"b":1},{"a":1}]}`, "", false, ""},
		"a sidecar in all":          {`{}`, `{"l":[{"a":1}]}`, `{"l":[{"b":1},{"a":1}]}`, "", true, "l"},
		"one stays in a list":       {`{"l":[{"a":1},{"a":2}]}`, `{"l":[{"a":1}]}`, `{"l":[{"a":1},{"a":2}]}`, "", false, "l"},
		"fields of the server":      {`{}`, `{"metadata":{"resourceVersion":"1","generation":1,"creationTimestamp":null},"status":{"a":1}}`, `{"metadata":{"resourceVersion":"2"}}`, "", false, ""},
		"a label":                   {`{"metadata":{}}`, `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"labels":{"c":"d"}}}`, "", false, "metadata.labels.a"},
		"status":                    {`{}`, `{"status":{"a":"x"}}`, `{"status":{}}`, "status", false, "status.a"},
		"beside the status":         {`{}`, `{"spec":{"a":1},"status":{"a":"x"}}`, `{"status":{"a":"x"}}`, "status", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sent := fromJSON(t, test.sent)
			field, ok := shows(fromJSON(t, test.stored), changesOf(fromJSON(t, test.before), sent), test.subresource, test.whole)
			if field != test.field || ok != (test.field == "") {
				t.Errorf("not shown: %q, want %q", field, test.field)
			}
		})
	}
}

// What was not changed is not asked for.
func TestOnlyChangesCount(t *testing.T) {
	before := fromJSON(t, `{"a":1,"b":{"c":[1,2],"d":"x"},"e":{}}`)
	after := fromJSON(t, `{"a":1,"b":{"c":[1,3],"d":"x","f":{"g":1,"h":2}},"e":{"i":1}}`)
	var paths []string
	for _, c := range changesOf(before, after) {
		paths = append(paths, c.path.String())
	}
	if got, want := strings.Join(paths, " "), "b.c b.f.g b.f.h e.i"; got != want {
		t.Errorf("changes: %s, want %s", got, want)
	}
	if all := changesOf(before, before); len(all) > 0 {
		t.Errorf("nothing was changed: %v", all)
	}
}

// What is equal for reflect.DeepEqual is so here, and nothing else.
func TestSameJSON(t *testing.T) {
	values := []any{
		nil, true, false, "", "a", int64(1), int64(0), 1.0, 1.5, 1, map[string]any(nil), map[string]any{}, map[string]any{"a": nil}, map[string]any{"b": nil}, map[string]any{"a": int64(1)},
		map[string]any{"a": map[string]any{"b": []any{"c"}}}, map[string]any{"a": map[string]any{"b": []any{"d"}}}, []any(nil), []any{}, []any{"a"}, []any{"a", "b"}, []any{"b", "a"}, []any{nil}, []any{[]any{}},
		[]string{"a"}, map[string]string{"a": "b"},
	}
	for _, a := range values {
		for _, b := range values {
			if got, want := sameJSON(a, b), reflect.DeepEqual(a, b); got != want {
				t.Errorf("%#v and %#v: %t, want %t", a, b, got, want)
			}
		}
	}
}
