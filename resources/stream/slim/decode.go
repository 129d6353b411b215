// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

const doneBits = 64

// decode walks the message b and sets the struct at base.
func (p *plan) decode(in *Interner, b []byte, base unsafe.Pointer) error {
	var done uint64 // FieldDecoders that had all their values
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return err
		}
		b = rest
		if int(f.num) >= len(p.ops) {
			continue
		}
		o := &p.ops[f.num]
		switch o.kind {
		case opSkip:
			continue
		case opSlice:
			err = o.decodeElem(in, &f, b, base)
		case opCustom:
			bit := uint64(1) << (f.num % doneBits)
			if done&bit != 0 {
				err = f.expect(protowire.BytesType)
				break
			}
			done |= bit
			err = o.set(in, &f, b, base)
		default:
			err = o.set(in, &f, nil, base)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// set stores one value. rest is what follows it in the message, for
// FieldDecoders.
func (o *op) set(in *Interner, f *wireField, rest []byte, base unsafe.Pointer) error {
	if err := f.expect(o.wire); err != nil {
		return err
	}
	switch o.kind {
	case opString:
		*at[string](base, o.offset) = string(f.value)
	case opIntern:
		*at[String](base, o.offset) = in.Intern(f.value)
	case opBool:
		*at[bool](base, o.offset) = f.varint != 0
	case opInt:
		storeInt(base, o.offset, o.size, f.varint)
	case opRevision:
		return at[Revision](base, o.offset).UnmarshalText(f.value)
	case opUID:
		*at[UID](base, o.offset) = parseUID(f.value)
	case opMessage:
		return o.plan.decode(in, f.value, unsafe.Add(base, o.offset))
	case opPointer:
		return o.elem.set(in, f, rest, newElem(base, o))
	case opFull:
		return as[unmarshaler](base, o).Unmarshal(f.value)
	case opCustom:
		return as[FieldDecoder](base, o).DecodeField(Field{num: f.num, first: f.value, rest: rest, in: in})
	}
	return nil
}

// decodeElem appends one element of a list. Its first element makes room for
// all of them, so that no list keeps more than it needs.
func (o *op) decodeElem(in *Interner, f *wireField, rest []byte, base unsafe.Pointer) error {
	if o.wire == protowire.VarintType && f.typ == protowire.BytesType {
		return o.decodePacked(in, f, base)
	}
	if err := f.expect(o.wire); err != nil {
		return err
	}
	elem := appendElem(base, o, func() int { return 1 + countField(f.num, rest) })
	return o.elem.set(in, f, nil, elem)
}

// decodePacked appends the elements of a packed list of numbers.
func (o *op) decodePacked(in *Interner, f *wireField, base unsafe.Pointer) error {
	for b := f.value; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		one := wireField{num: f.num, typ: protowire.VarintType, varint: v}
		if err := o.elem.set(in, &one, nil, appendElem(base, o, func() int { return 1 + len(b) })); err != nil {
			return err
		}
	}
	return nil
}

func countField(num protowire.Number, b []byte) (n int) {
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return n
		}
		if f.num == num {
			n++
		}
		b = rest
	}
	return n
}
