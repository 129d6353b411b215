// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// labelled is a slim ConfigMap: two maps of strings.
type labelled struct {
	Meta `json:"metadata"`
	Data Labels `json:"data"`
}

func decodeLabels(t *testing.T, pairs ...string) Labels {
	t.Helper()
	codec, err := Protobuf[labelled, corev1.ConfigMap]()
	if err != nil {
		t.Fatal(err)
	}
	var message []byte
	for i := 0; i < len(pairs); i += 2 {
		entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), pairs[i])
		entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), pairs[i+1])
		message = protowire.AppendBytes(protowire.AppendTag(message, FieldNumber[corev1.ConfigMap]("data"), protowire.BytesType), entry)
	}
	var obj labelled
	if err := codec.DecodeProtobuf(NewInterner(), message, &obj); err != nil {
		t.Fatal(err)
	}
	return obj.Data
}

func labelsOf(t *testing.T, text string) (l Labels) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// However a set arrives, and in whatever order, it is one and the same word.
func TestEqualLabelsAreEqual(t *testing.T) {
	long := strings.Repeat("long ", 100)
	want := map[string]string{"app": "web", "note": long, "tier": ""}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	made := MakeLabels(want)
	for from, got := range map[string]Labels{
		"protobuf":                   decodeLabels(t, "app", "web", "note", long, "tier", ""),
		"protobuf, unsorted":         decodeLabels(t, "tier", "", "app", "web", "note", long),
		"protobuf, a key twice":      decodeLabels(t, "app", "old", "app", "web", "note", long, "tier", ""),
		"JSON":                       labelsOf(t, string(text)),
		"JSON, unsorted and escaped": labelsOf(t, `{ "tier" : "", "\u0061pp":"web", "note":"`+long+`" }`),
		"JSON, a key twice":          labelsOf(t, `{"app":"old","app":"web","note":"`+long+`","tier":""}`),
	} {
		if got != made {
			t.Errorf("%s: %v is another value than %v", from, got, made)
		}
	}
	if !maps.Equal(made.Map(), want) {
		t.Errorf("the map is %v, want %v", made.Map(), want)
	}
	if MakeLabels(map[string]string{"app": "web"}) == made {
		t.Error("different sets are equal")
	}
}

func TestEmptyLabelsAreZero(t *testing.T) {
	for from, l := range map[string]Labels{
		"nil": MakeLabels(nil), "empty map": MakeLabels(map[string]string{}), "{}": labelsOf(t, "{}"), "null": labelsOf(t, "null"), "protobuf": decodeLabels(t),
	} {
		if l != (Labels{}) || l.Len() != 0 || l.Map() != nil || l.String() != "" || l.Has("") {
			t.Errorf("%s: %q is not empty", from, l)
		}
	}
}

func TestLabelsAnswer(t *testing.T) {
	l := MakeLabels(map[string]string{"b": "2", "a": "1", "empty": ""})
	if l.Len() != 3 || l.String() != "a=1,b=2,empty=" {
		t.Errorf("%d pairs: %s", l.Len(), l)
	}
	if v, ok := l.Lookup("empty"); v != "" || !ok || !l.Has("empty") {
		t.Error("a label without a value is not there")
	}
	if v, ok := l.Lookup("c"); v != "" || ok || l.Get("c") != "" || l.Get("b") != "2" {
		t.Error("wrong answers")
	}
	for selector, want := range map[string]bool{"a=1,!c": true, "empty": true, "b in (1,3)": false, "c": false} {
		s, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		if s.Matches(l) != want {
			t.Errorf("%s matches: %v, want %v", selector, !want, want)
		}
	}
	text, err := json.Marshal(l)
	if err != nil || labelsOf(t, string(text)) != l {
		t.Errorf("JSON %s, %v, is not read back", text, err)
	}
}

func TestBadLabels(t *testing.T) {
	for _, text := range []string{`{"a":1}`, `["a"]`, `"a"`} {
		if err := json.Unmarshal([]byte(text), new(Labels)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func TestSubsetKeepsWhatItsFilterKeeps(t *testing.T) {
	var s Subset[CiliumAnnotations]
	const text = `{"cilium.io/a":"1","example.com/b":"2","io.cilium/c":"3","io.cilium.network.d/e":"4","notcilium.io/f":"5","service.cilium.io/g":"6"}`
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if want := MakeLabels(map[string]string{"cilium.io/a": "1", "io.cilium/c": "3", "io.cilium.network.d/e": "4", "service.cilium.io/g": "6"}); s.Labels != want {
		t.Errorf("kept %v, want %v", s, want)
	}
}
