// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"fmt"
	"iter"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
)

// A FieldDecoder is a field type (a pointer to it) that decodes itself, for
// what a plain Go type would keep at too high a price. It implements
// json.Unmarshaler or encoding.TextUnmarshaler too, for custom resources.
type FieldDecoder interface {
	// AcceptsField returns an error if the field, of type full in the full
	// object (pointers taken away), is not one that the type can keep. It is
	// called once, on a zero value, when a codec is made.
	AcceptsField(full reflect.Type) error
	// DecodeField sets the receiver. It is called at most once per message and
	// must not retain any bytes of f.
	DecodeField(f Field) error
}

// Field is the protobuf encoding of one field of one message: a value, or for
// lists and maps all their elements.
type Field struct {
	num   protowire.Number
	first []byte
	rest  []byte // what follows the first value in the message
	in    *Interner
}

// Values yields the encoded values, message bodies and strings alike, without
// tag and length. They are valid until DecodeField returns.
func (f Field) Values() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if !yield(f.first) {
			return
		}
		for rest := f.rest; len(rest) > 0; {
			var part wireField
			var err error
			if part, rest, err = nextField(rest); err != nil {
				return // the decoder of the message finds it too, and says so
			}
			if part.num == f.num && part.typ == protowire.BytesType && !yield(part.value) {
				return
			}
		}
	}
}

// Intern returns the String with the bytes of b.
func (f Field) Intern(b []byte) String { return f.in.Intern(b) }

// scratch returns an empty buffer to pack parts into, for internScratch.
func (f Field) scratch() []byte { return f.in.scratch[:0] }

func (f Field) internScratch(packed []byte) String {
	f.in.scratch = packed
	return f.in.Intern(packed)
}

// wireField is one field of a message as it is on the wire.
type wireField struct {
	num    protowire.Number
	typ    protowire.Type
	varint uint64
	value  []byte // of a BytesType field
}

// nextField cuts the first field off b.
func nextField(b []byte) (f wireField, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	f.num, f.typ, b = num, typ, b[n:]
	switch typ {
	case protowire.BytesType:
		f.value, n = protowire.ConsumeBytes(b)
	case protowire.VarintType:
		f.varint, n = protowire.ConsumeVarint(b)
	default:
		n = protowire.ConsumeFieldValue(num, typ, b)
	}
	if n < 0 {
		return f, nil, protowire.ParseError(n)
	}
	return f, b[n:], nil
}

func (f *wireField) expect(typ protowire.Type) error {
	if f.typ != typ {
		return fmt.Errorf("field %d has wire type %d, not %d", f.num, f.typ, typ)
	}
	return nil
}

func (f *wireField) bytes() ([]byte, error) { return f.value, f.expect(protowire.BytesType) }

func (f *wireField) bool() (bool, error) { return f.varint != 0, f.expect(protowire.VarintType) }
