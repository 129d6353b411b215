// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"reflect"
	"unsafe"
)

// All of the package's unsafe code. A plan addresses the fields of a slim
// struct by their offsets, which came from reflect for the very type that the
// base pointer has; through reflect alone each store costs an allocation or a
// chain of calls, and decoding is the largest part of a stream's bill.

// pointerTo returns the address that plans decode into.
func pointerTo[T any](obj *T) unsafe.Pointer { return unsafe.Pointer(obj) }

// at returns the field of type F at this offset of the struct at base.
func at[F any](base unsafe.Pointer, offset uintptr) *F { return (*F)(unsafe.Add(base, offset)) }

// storeInt stores the low bytes of v, which the plan found to be enough.
func storeInt(base unsafe.Pointer, offset uintptr, size uint8, v uint64) {
	switch size {
	case 1:
		*at[uint8](base, offset) = uint8(v)
	case 2:
		*at[uint16](base, offset) = uint16(v)
	case 4:
		*at[uint32](base, offset) = uint32(v)
	case 8:
		*at[uint64](base, offset) = v
	}
}

// as returns the field as an interface that a pointer to its type implements.
func as[I any](base unsafe.Pointer, o *op) I {
	return reflect.NewAt(o.typ, unsafe.Add(base, o.offset)).Interface().(I)
}

// newElem sets a pointer field, if it is nil, and returns what it points to.
func newElem(base unsafe.Pointer, o *op) unsafe.Pointer {
	field := reflect.NewAt(o.typ, unsafe.Add(base, o.offset)).Elem()
	if field.IsNil() {
		field.Set(reflect.New(o.typ.Elem()))
	}
	return field.UnsafePointer()
}

// appendElem lengthens a slice field by one zero element and returns that. A
// full slice gets room for room() more.
func appendElem(base unsafe.Pointer, o *op, room func() int) unsafe.Pointer {
	field := reflect.NewAt(o.typ, unsafe.Add(base, o.offset)).Elem()
	n := field.Len()
	if n == field.Cap() {
		field.Grow(room())
	}
	field.SetLen(n + 1)
	return field.Index(n).Addr().UnsafePointer()
}
