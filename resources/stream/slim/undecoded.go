// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/skep-operator/skep/runtime/printable"
)

// Undecoded names the fields of an object that could not be decoded. A slim type
// of a custom resource embeds it:
//
//	type Thing struct {
//		slim.Meta      `json:"metadata"`
//		slim.Undecoded `json:"-"`
//		Spec           ThingSpec `json:"spec"`
//	}
//
// The definition of a custom resource may be laxer or newer than the slim type,
// so that any field may have another type. Objects of a type with Undecoded keep
// the fields that can be decoded; the others are zero and named here. Objects of
// a type without it cannot be decoded at all then. An object whose name,
// namespace, uid or resourceVersion cannot be decoded is never kept.
//
// A field that the type does not have is never decoded, so its type does not
// matter. The zero Undecoded says that all fields were decoded. It is one word,
// immutable, and comparable with ==.
type Undecoded struct{ fields *[]undecodedField }

type undecodedField struct {
	path string
	raw  []byte // nil if it is larger than maxRaw
	why  string
}

const (
	maxRaw   = 64 << 10 // of a field, in bytes
	maxWhy   = 200
	maxNamed = 5 // fields in an error
	// mostParts is how many elements of a list are named: of a list with more, none counts.
	mostParts = 2000
)

// CannotDecode reports whether any of these fields, a part of it, or what it is a
// part of, could not be decoded. Paths are JSON names with dots between them, as
// in "spec.ipam.podCIDRs".
func (u Undecoded) CannotDecode(paths ...string) bool {
	for _, f := range u.all() {
		for _, path := range paths {
			if isPart(f.path, path) || isPart(path, f.path) {
				return true
			}
		}
	}
	return false
}

// DecodeError names the fields that could not be decoded, and why; of many the
// first ones. It is nil if there are none.
func (u Undecoded) DecodeError() error {
	all := u.all()
	if len(all) == 0 {
		return nil
	}
	var texts []string
	for i, f := range all {
		if i == maxNamed {
			texts = append(texts, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		texts = append(texts, f.path+": "+f.why)
	}
	return fmt.Errorf("cannot decode %s", strings.Join(texts, "; "))
}

// RawField returns a field that could not be decoded as the server sent it, nil
// if it was decoded, if it is part of a field that could not be, or if it is
// larger than 64 KiB. The caller must not change it.
func (u Undecoded) RawField(path string) []byte {
	for _, f := range u.all() {
		if f.path == path {
			return f.raw
		}
	}
	return nil
}

func (u Undecoded) all() []undecodedField {
	if u.fields == nil {
		return nil
	}
	return *u.fields
}

// isPart reports whether path is the field whole or a part of it.
func isPart(path, whole string) bool {
	rest, ok := strings.CutPrefix(path, whole)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[' || whole == "")
}

func (u *Undecoded) undecoded() *Undecoded { return u }

// partial is met by pointers to types that embed Undecoded.
type partial interface{ undecoded() *Undecoded }

// A Needer is a pointer to a slim type that embeds [Undecoded] and is of no use without some of its fields. An object of which one of these, or a
// part of it, cannot be decoded is as one of a type without Undecoded. Paths are as for [Undecoded.CannotDecode].
type Needer interface{ Needs() []string }

// UndecodedOf returns the Undecoded that *obj embeds, the zero Undecoded if its
// type has none. obj is a pointer.
func UndecodedOf(obj any) Undecoded {
	if p, ok := obj.(partial); ok {
		return *p.undecoded()
	}
	return Undecoded{}
}

// salvage decodes what can be decoded of an object into *obj. The error says why
// the object cannot be kept.
func salvage(object []byte, obj any) error {
	u, err := decodeParts(object, obj)
	if err != nil {
		return err
	}
	if u.CannotDecode("metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion") {
		return u.DecodeError()
	}
	if n, ok := obj.(Needer); ok && u.CannotDecode(n.Needs()...) {
		return u.DecodeError()
	}
	if p, ok := obj.(partial); ok {
		*p.undecoded() = u
		return nil
	}
	return u.DecodeError()
}

// decodeParts sets those fields of *obj that can be decoded, and returns the
// others.
func decodeParts(object []byte, obj any) (u Undecoded, err error) {
	defer recoverTo(&err)
	v, s := reflect.ValueOf(obj).Elem(), salvager{}
	v.SetZero()
	s.decodeStruct(object, v, "")
	return Undecoded{&s.fields}, nil
}

// salvager decodes an object field by field. Its cost is that of decoding the
// object once per level; only objects that cannot be decoded at once take it.
type salvager struct{ fields []undecodedField }

func (s *salvager) give(path string, raw []byte, why error) {
	f := undecodedField{path: path, why: printable.Cut(why.Error(), maxWhy)}
	if len(raw) <= maxRaw {
		f.raw = append([]byte(nil), raw...)
	}
	s.fields = append(s.fields, f)
}

// decode decodes a value, or the parts of it that can be decoded.
func (s *salvager) decode(raw []byte, v reflect.Value, path string) {
	if !v.CanSet() { // an embedded struct of an unexported type; its fields can be set
		s.decodeStruct(raw, v, path)
		return
	}
	fresh := reflect.New(v.Type())
	err := decodeJSON(raw, fresh.Interface())
	if err == nil {
		v.Set(fresh.Elem())
		return
	}
	switch kind := v.Kind(); {
	case errors.Is(err, errEntries) && kind != reflect.Struct:
		s.give(path, raw, err)
	case fresh.Type().Implements(jsonUnmarshalerType), fresh.Type().Implements(textUnmarshalerType):
		s.give(path, raw, err)
	case kind == reflect.Struct:
		s.decodeStruct(raw, v, path)
	case kind == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct && isObject(raw):
		v.Set(reflect.New(v.Type().Elem()))
		s.decode(raw, v.Elem(), path)
	case kind == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		s.decodeSlice(raw, v, path)
	default:
		s.give(path, raw, err)
	}
}

func isObject(raw []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) }

func (s *salvager) decodeStruct(raw []byte, v reflect.Value, path string) {
	var parts map[string]rawJSON
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &parts) != nil {
		s.give(path, raw, errors.New("it is no object"))
		return
	}
	s.decodeFields(parts, v, path)
}

func (s *salvager) decodeFields(parts map[string]rawJSON, v reflect.Value, path string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, inline := jsonName(f)
		raw, there := parts[name]
		switch {
		case name == "-":
		case inline:
			s.decodeFields(parts, v.Field(i), path)
		case there && (f.IsExported() || f.Anonymous):
			s.decode(raw, v.Field(i), join(path, name))
		}
	}
}

// decodeSlice decodes the elements of a list. Those that cannot be decoded keep
// their places.
func (s *salvager) decodeSlice(raw []byte, v reflect.Value, path string) {
	var parts []rawJSON
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &parts) != nil {
		s.give(path, raw, errors.New("it is no list"))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(parts), len(parts)))
	before := len(s.fields)
	for i, part := range parts {
		s.decode(part, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		if len(s.fields)-before > mostParts {
			v.SetZero()
			s.fields = s.fields[:before]
			s.give(path, raw, fmt.Errorf("more than %d of its elements cannot be decoded", mostParts))
			return
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// rawJSON is a value as it is.
type rawJSON []byte

// UnmarshalJSON implements json.Unmarshaler.
func (r *rawJSON) UnmarshalJSON(data []byte) error {
	*r = append((*r)[:0], data...)
	return nil
}
