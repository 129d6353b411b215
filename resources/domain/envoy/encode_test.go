// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"bytes"
	"encoding/json"
	"testing"
)

// ENV-11: a list is added to an object as the encoder would write both.
func TestWithList(t *testing.T) {
	items := []json.RawMessage{[]byte(`{"a":"<b> &"}`), []byte(`"c"`), []byte(`[1,2]`)}
	for _, object := range []string{`{}`, `{"a":1}`, `{"list":[],"z":"<\u2028>"}`, `{"a":1,"m":{"b":[]},"z":null}`, `{"with \"quotes\"":1}`} {
		for n := range len(items) + 1 {
			fields := map[string]json.RawMessage{}
			if err := json.Unmarshal([]byte(object), &fields); err != nil {
				t.Fatal(err)
			}
			list, err := marshal(items[:n])
			if err != nil {
				t.Fatal(err)
			}
			fields["list"] = list
			want, err := marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := withList([]byte(object), "list", items[:n]); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s with %d items is %s, want %s: %v", object, n, got, want, err)
			}
		}
	}
	if _, err := withList([]byte(`[]`), "list", items); err == nil {
		t.Error("a list is added to what is no object")
	}
}
