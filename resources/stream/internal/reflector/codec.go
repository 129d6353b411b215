// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import "github.com/skep-operator/skep/resources/stream/slim"

// Codec is the slim.Codec of the type that P points to.
//
// This package and changelog are generic in pointers with the constraint any: the compiler makes
// one body for all of those, and one for each of the types themselves, which would be a hundred kilobytes.
type Codec[P any] interface {
	SpeaksProtobuf() bool
	MetadataOnly() bool
	DecodeProtobufMeta(in *slim.Interner, message []byte) (slim.Meta, error)
	DecodeJSONMeta(object []byte) (slim.Meta, error)
	decode(enc encoding, in *slim.Interner, message []byte) (item[P], error)
}

// NewCodec returns a codec for a reflector.
func NewCodec[T any](c *slim.Codec[T]) Codec[*T] { return codec[T]{c} }

type codec[T any] struct{ *slim.Codec[T] }

// decode decodes an object without envelope.
func (c codec[T]) decode(enc encoding, in *slim.Interner, message []byte) (item[*T], error) {
	obj := &object[T]{}
	if enc == inJSON {
		return obj, c.DecodeJSON(message, &obj.value)
	}
	return obj, c.DecodeProtobuf(in, message, &obj.value)
}
