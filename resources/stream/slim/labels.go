// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/skep-operator/skep/runtime/printable"
)

// Labels is an immutable map[string]string in one word: equal sets share their
// bytes and compare equal with ==. It serves every string map of an object
// (labels, selectors, data), and implements labels.Labels, so that a
// labels.Selector matches it. The zero Labels is empty.
type Labels struct{ packed String }

var _ labels.Labels = Labels{}

// MakeLabels returns the Labels with the content of m.
func MakeLabels(m map[string]string) Labels {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = appendPart(appendPart(b, k), m[k])
	}
	return Labels{MakeString(string(b))}
}

// All yields the pairs in the order of their keys.
func (l Labels) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		var k, v string
		for rest := l.packed.String(); rest != ""; {
			k, rest = nextPart(rest)
			v, rest = nextPart(rest)
			if !yield(k, v) {
				return
			}
		}
	}
}

// Size returns about how many bytes the pairs have together.
func (l Labels) Size() int { return len(l.packed.String()) }

// maxBrief is how many bytes Brief returns at most, about.
const maxBrief = 1000

// Brief implements explain.Brief: what is remembered of a label set does not keep a large one in memory.
func (l Labels) Brief() any {
	if l.Size() <= maxBrief {
		return l
	}
	sum := sha256.Sum256([]byte(l.packed.String()))
	return fmt.Sprintf("%s (%x)", printable.Cut(l.String(), maxBrief), sum[:8])
}

// Len returns the number of pairs.
func (l Labels) Len() (n int) {
	for range l.All() {
		n++
	}
	return n
}

// Lookup returns the value of key and whether there is one.
func (l Labels) Lookup(key string) (value string, exists bool) {
	for k, v := range l.All() {
		if k == key {
			return v, true
		}
	}
	return "", false
}

// Get returns the value of key, "" if there is none.
func (l Labels) Get(key string) string {
	v, _ := l.Lookup(key)
	return v
}

// Has reports whether there is a pair with this key.
func (l Labels) Has(key string) bool {
	_, ok := l.Lookup(key)
	return ok
}

// Map returns a copy that the caller may change, nil if there are no pairs.
func (l Labels) Map() map[string]string {
	if l == (Labels{}) {
		return nil
	}
	return maps.Collect(l.All())
}

// Only returns the pairs with these keys.
func (l Labels) Only(keys ...string) Labels {
	kept := map[string]string{}
	for k, v := range l.All() {
		if slices.Contains(keys, k) {
			kept[k] = v
		}
	}
	return MakeLabels(kept)
}

// short returns the pairs with the beginnings of long values; none if that is long, too.
func (l Labels) short() Labels {
	kept := map[string]string{}
	for k, v := range l.All() {
		kept[k] = strings.Clone(v[:min(len(v), mostOfValue)])
	}
	if l = MakeLabels(kept); l.Size() > mostOfField {
		return Labels{}
	}
	return l
}

// String returns the pairs as "a=b,c=d".
func (l Labels) String() string {
	var pairs []string
	for k, v := range l.All() {
		pairs = append(pairs, k+"="+v)
	}
	return strings.Join(pairs, ",")
}

// MarshalJSON implements json.Marshaler.
func (l Labels) MarshalJSON() ([]byte, error) { return json.Marshal(l.Map()) }

// UnmarshalJSON implements json.Unmarshaler.
func (l *Labels) UnmarshalJSON(data []byte) (err error) {
	*l, err = labelsFromJSON(data, nil)
	return err
}

// AcceptsField implements FieldDecoder.
func (*Labels) AcceptsField(full reflect.Type) error {
	if full.Kind() != reflect.Map || full.Key().Kind() != reflect.String || full.Elem().Kind() != reflect.String {
		return fmt.Errorf("slim.Labels keeps a map of strings, not %s", full)
	}
	return nil
}

// DecodeField implements FieldDecoder.
func (l *Labels) DecodeField(f Field) (err error) {
	*l, err = labelsFromWire(f, nil)
	return err
}

// A KeyFilter says which keys of a map are kept. It is a type without state, so
// that it can ride on a field's type: see [Subset].
type KeyFilter interface{ Keep(key string) bool }

// Subset is a [Labels] that keeps the keys that the zero value of F keeps and
// never holds the others, not even while it decodes. Use it for annotations,
// which can be large.
type Subset[F KeyFilter] struct{ Labels }

// UnmarshalJSON implements json.Unmarshaler.
func (s *Subset[F]) UnmarshalJSON(data []byte) (err error) {
	var filter F
	s.Labels, err = labelsFromJSON(data, filter.Keep)
	return err
}

// DecodeField implements FieldDecoder.
func (s *Subset[F]) DecodeField(f Field) (err error) {
	var filter F
	s.Labels, err = labelsFromWire(f, filter.Keep)
	return err
}

// labelsFromWire packs the entries of a protobuf map. API servers write them in
// the order of their keys, so they are packed as they come; any other order
// takes the detour over a map.
func labelsFromWire(f Field, keep func(string) bool) (Labels, error) {
	packed, first := f.scratch(), true
	var last []byte
	for entry := range f.Values() {
		k, v, err := mapEntry(entry)
		if err != nil {
			return Labels{}, err
		}
		if keep != nil && !keep(string(k)) {
			continue
		}
		if !first && bytes.Compare(last, k) >= 0 {
			return unsortedFromWire(f, keep)
		}
		packed = appendPart(appendPart(packed, k), v)
		last, first = k, false
	}
	return Labels{f.internScratch(packed)}, nil
}

func unsortedFromWire(f Field, keep func(string) bool) (Labels, error) {
	m := map[string]string{}
	for entry := range f.Values() {
		k, v, err := mapEntry(entry)
		if err != nil {
			return Labels{}, err
		}
		if keep == nil || keep(string(k)) {
			m[string(k)] = string(v)
		}
	}
	return MakeLabels(m), nil
}

// mapEntry reads one entry of a map<string,string>.
func mapEntry(b []byte) (key, value []byte, err error) {
	var part wireField
	for len(b) > 0 && err == nil {
		if part, b, err = nextField(b); err != nil {
			break
		}
		switch part.num {
		case 1:
			key, err = part.bytes()
		case 2:
			value, err = part.bytes()
		}
	}
	return key, value, err
}

// labelsFromJSON takes the quick way for what API servers write: one object of
// plain strings in the order of their keys.
func labelsFromJSON(data []byte, keep func(string) bool) (Labels, error) {
	if packed, ok := packSortedJSON(data, keep); ok {
		return Labels{MakeString(string(packed))}, nil
	}
	var m map[string]string
	if err := json.Unmarshal(data, &m); err != nil {
		return Labels{}, err
	}
	if keep != nil {
		maps.DeleteFunc(m, func(k, _ string) bool { return !keep(k) })
	}
	return MakeLabels(m), nil
}

func packSortedJSON(data []byte, keep func(string) bool) (packed []byte, ok bool) {
	data = bytes.TrimSpace(data)
	if len(data) < 2 || data[0] != '{' || data[len(data)-1] != '}' {
		return nil, false
	}
	packed = make([]byte, 0, len(data))
	var last []byte
	for rest := data[1 : len(data)-1]; len(rest) > 0; {
		if last != nil {
			if rest[0] != ',' {
				return nil, false
			}
			rest = rest[1:]
		}
		var k, v []byte
		if k, rest, ok = plainJSONString(rest); !ok || len(rest) == 0 || rest[0] != ':' {
			return nil, false
		}
		if v, rest, ok = plainJSONString(rest[1:]); !ok {
			return nil, false
		}
		if last != nil && bytes.Compare(last, k) >= 0 {
			return nil, false
		}
		last = k
		if keep == nil || keep(string(k)) {
			packed = appendPart(appendPart(packed, k), v)
		}
	}
	return packed, true
}

// plainJSONString cuts a string off b that needs no unquoting.
func plainJSONString(b []byte) (s, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	for i, c := range b[1:] {
		switch {
		case c == '"':
			return b[1 : 1+i], b[2+i:], true
		case c == '\\' || c < ' ' || c >= 0x80:
			return nil, nil, false
		}
	}
	return nil, nil, false
}
