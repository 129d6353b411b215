// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/skep-operator/skep/runtime/lifecycle"
)

// A Codec decodes the objects of one slim type. It is immutable and safe for
// concurrent use; the Interners passed to it are not.
type Codec[T any] struct {
	plan     *plan // nil: JSON only
	meta     *plan // of the object with nothing but its Meta
	metadata bool  // the server is asked for metadata only
}

// identity is the part of an object that has to be readable for it to be known
// as unreadable rather than as missing.
type identity struct {
	Meta `json:"metadata"`
}

// Protobuf returns the codec for a type that the API server knows itself, whose
// Go type is Full: protobuf, or JSON from servers that do not speak it. All
// mismatches between T and Full are in the error.
func Protobuf[T, Full any]() (*Codec[T], error) {
	slim, full := reflect.TypeFor[T](), reflect.TypeFor[Full]()
	if err := checkSlim(slim); err != nil {
		return nil, err
	}
	if full.Kind() != reflect.Struct {
		return nil, fmt.Errorf("slim type %s: the full type %s is not a struct", slim, full)
	}
	c := &Codec[T]{}
	var err, metaErr error
	c.plan, err = compile(slim, full)
	c.meta, metaErr = compile(reflect.TypeFor[identity](), full)
	if err = errors.Join(err, metaErr); err != nil {
		return nil, fmt.Errorf("slim type %s does not fit %s: %w", slim, full, err)
	}
	return c, nil
}

// JSON returns the codec for a custom resource. Names are matched as the API
// server does, with case.
func JSON[T any]() (*Codec[T], error) {
	if err := checkSlim(reflect.TypeFor[T]()); err != nil {
		return nil, err
	}
	return &Codec[T]{}, nil
}

// Metadata returns the codec for any kind of object of which only metadata is
// kept; the server sends nothing else, and that in protobuf.
func Metadata[T any]() (*Codec[T], error) {
	c, err := Protobuf[T, metav1.PartialObjectMetadata]()
	if err != nil {
		return nil, err
	}
	c.metadata = true
	return c, nil
}

// SpeaksProtobuf reports whether the codec reads protobuf.
func (c *Codec[T]) SpeaksProtobuf() bool { return c.plan != nil }

// MetadataOnly reports whether the server is to be asked for metadata only.
func (c *Codec[T]) MetadataOnly() bool { return c.metadata }

// DecodeProtobuf decodes the protobuf message of a full object into *obj, which
// must be zero. On error *obj is not usable.
func (c *Codec[T]) DecodeProtobuf(in *Interner, message []byte, obj *T) error {
	if err := decodeProtobuf(c.plan, in, message, obj); err != nil {
		return err
	}
	return trim(obj)
}

// A Trimmer is a pointer to a slim type that drops parts of an object that depend on others of its fields, such as the
// spec of an object that its annotations exclude. Trim is called once, when the object is decoded.
type Trimmer interface{ Trim() }

func trim(obj any) (err error) {
	defer recoverTo(&err)
	if t, ok := obj.(Trimmer); ok {
		t.Trim()
	}
	return nil
}

// DecodeProtobufMeta decodes only what names the object.
func (c *Codec[T]) DecodeProtobufMeta(in *Interner, message []byte) (Meta, error) {
	var id identity
	err := decodeProtobuf(c.meta, in, message, &id)
	if f, rest, broken := nextField(message); err != nil && broken == nil && f.num == metadataNumber {
		id = identity{} // what follows the metadata may be cut
		err = decodeProtobuf(c.meta, in, message[:len(message)-len(rest)], &id)
	}
	return id.Meta, err
}

// metadataNumber is the field of metadata in all objects, which is written first.
var metadataNumber = FieldNumber[metav1.PartialObjectMetadata]("metadata")

func decodeProtobuf[T any](p *plan, in *Interner, message []byte, obj *T) (err error) {
	defer recoverTo(&err)
	return p.decode(in, message, pointerTo(obj))
}

// DecodeJSON decodes a full object into *obj, which must be zero. Fields that
// cannot be decoded are named in the Undecoded of T, if it has one; else they are
// an error. On error *obj is not usable.
func (c *Codec[T]) DecodeJSON(object []byte, obj *T) error {
	if decodeJSON(object, obj) != nil {
		if err := salvage(object, obj); err != nil {
			return err
		}
	}
	return trim(obj)
}

// DecodeJSONMeta decodes only what names the object.
func (c *Codec[T]) DecodeJSONMeta(object []byte) (Meta, error) {
	var id identity
	u, err := decodeParts(object, &id)
	if err == nil && u.CannotDecode("metadata.name", "metadata.namespace") {
		err = u.DecodeError()
	}
	return id.Meta, err
}

func decodeJSON(raw []byte, value any) (err error) {
	defer recoverTo(&err)
	if err := checkEntries(raw, reflect.TypeOf(value).Elem()); err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, value)
}

// recoverTo turns the panic of a FieldDecoder into an error: a bad object costs
// itself, not the process.
func recoverTo(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("decoder panicked: %w", lifecycle.AsPanic(r, debug.Stack()))
	}
}

// checkSlim finds what would fail only when the first object arrives.
func checkSlim(t reflect.Type) error {
	switch {
	case t.Kind() != reflect.Struct:
		return fmt.Errorf("slim type %s is not a struct", t)
	case !reflect.PointerTo(t).Implements(reflect.TypeFor[holder]()):
		return fmt.Errorf("slim type %s does not embed slim.Meta exactly once: embed it in the struct tagged `json:\"metadata\"`", t)
	case !metaAtPlace(t):
		return fmt.Errorf("slim type %s does not have slim.Meta at `json:\"metadata\"`", t)
	}
	return checkJSON(t, t.Name())
}

func metaAtPlace(t reflect.Type) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _ := jsonName(f); name == "metadata" && f.Anonymous {
			return f.Type == reflect.TypeFor[Meta]() || embedsMeta(f.Type)
		}
	}
	return false
}

func embedsMeta(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		_, inline := jsonName(f)
		if inline && (f.Type == reflect.TypeFor[Meta]() || embedsMeta(f.Type)) {
			return true
		}
	}
	return false
}

var (
	jsonUnmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// checkJSON makes sure that field types that decode protobuf themselves decode
// JSON too.
func checkJSON(t reflect.Type, at string) error {
	ptr := reflect.PointerTo(t)
	switch {
	case ptr.Implements(jsonUnmarshalerType), ptr.Implements(textUnmarshalerType):
		return nil
	case ptr.Implements(fieldDecoderType):
		return fmt.Errorf("%s: %s is a FieldDecoder without UnmarshalJSON or UnmarshalText", at, t)
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		if len(at) > maxPath {
			return nil // a recursive type; json can
		}
		return checkJSON(t.Elem(), at)
	case reflect.Struct:
		var errs []error
		for i := range t.NumField() {
			f := t.Field(i)
			if name, _ := jsonName(f); name == "-" || len(at) > maxPath {
				continue
			}
			errs = append(errs, checkJSON(f.Type, at+"."+f.Name))
		}
		return errors.Join(errs...)
	}
	return nil
}

// maxPath ends the walk through a recursive type.
const maxPath = 256
