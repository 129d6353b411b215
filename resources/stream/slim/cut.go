// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"time"
)

// Cut says whether parts of an object are not kept, since the large objects of its namespace would need more memory than there is for
// them. A slim type whose objects may be large embeds it, and implements [Cutter]:
//
//	type Thing struct {
//		slim.Meta `json:"metadata"`
//		slim.Cut  `json:"-"`
//		Spec      ThingSpec `json:"spec"`
//	}
//
// A duty does not serve what is cut, and says so on the object. The zero Cut is that of an object that is kept whole. It is one word, immutable, and
// comparable with ==.
type Cut struct{ size int }

// IsCut reports whether parts of the object are not kept.
func (c Cut) IsCut() bool { return c.size > 0 }

// CutError says that the object is not kept, and what helps. It is nil if the object is whole.
func (c Cut) CutError() error {
	if !c.IsCut() {
		return nil
	}
	return fmt.Errorf("it needs %d KiB of memory, and the large objects of its namespace have no more: make them smaller, or raise the memory of the operator (GOMEMLIMIT)", c.size>>10)
}

func (c *Cut) cut() *Cut { return c }

// A Cutter is a pointer to a slim type that embeds [Cut]. CutDown drops what may be large: the spec, but for what says whose the object is.
type Cutter interface {
	CutDown()
	cut() *Cut
}

// How many bytes are kept of an object that is cut, and, if it would be more, of a field, and of a value of its labels or annotations, of which the API server
// accepts 256 KiB.
const (
	mostLeft    = 80 << 10
	mostOfField = 16 << 10
	mostOfValue = 1 << 10
)

// CutDown cuts an object that needs so many bytes down, and reports whether its type can be. Where what its type leaves is still large, its long fields go,
// too: its age and its class do not. obj is a pointer.
func CutDown(obj any, size int) bool {
	c, ok := obj.(Cutter)
	if !ok {
		return false
	}
	if c.CutDown(); SizeOf(obj) > mostLeft {
		dropLong(reflect.ValueOf(obj).Elem())
	}
	if SizeOf(obj) > mostLeft {
		meta := *MetaOf(obj)
		reflect.ValueOf(obj).Elem().SetZero()
		*MetaOf(obj) = meta
	}
	*c.cut() = Cut{roughly(size)}
	return true
}

// dropLong drops the long fields of a struct. Of labels and annotations it keeps the beginnings of values.
func dropLong(v reflect.Value) {
	for i := range v.NumField() {
		f, t := v.Field(i), v.Type().Field(i)
		switch {
		case behind(f) <= mostOfField || !t.IsExported() && !t.Anonymous:
		case f.Type() == reflect.TypeFor[Labels]():
			f.Set(reflect.ValueOf(f.Interface().(Labels).short()))
		case f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[Undecoded]():
			dropLong(f)
		case f.CanSet():
			f.SetZero()
		}
	}
}

// roughly rounds a number of bytes up, by a sixteenth at most: an object that grows by a little, as where its status is written, is
// cut as before, and has no new Event.
func roughly(size int) int {
	step := max(1, 1<<bits.Len(uint(size))>>5)
	return (size + step - 1) / step * step
}

// mostStatus is how many bytes of a status are kept of an object that is cut: others may write into it.
const mostStatus = 16 << 10

// CutStatus drops a status that is large.
func CutStatus[T any](status *T) {
	if SizeOf(status) > mostStatus {
		*status = *new(T)
	}
}

// First returns the first n of a list, those of a longer one in memory of their own.
func First[T any](all []T, n int) []T {
	if len(all) <= n {
		return all
	}
	return slices.Clone(all[:n:n])
}

// CutOf returns the Cut that *obj embeds, the zero Cut if its type has none. obj is a pointer.
func CutOf(obj any) Cut {
	if c, ok := obj.(Cutter); ok {
		return *c.cut()
	}
	return Cut{}
}

// SizeOf returns how many bytes of memory *obj takes, with all that it refers to; what several fields share is counted for each. obj is a pointer.
func SizeOf(obj any) int {
	v := reflect.ValueOf(obj).Elem()
	return int(v.Type().Size()) + behind(v)
}

// behind is how many bytes a value refers to.
func behind(v reflect.Value) (size int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			size = int(v.Elem().Type().Size()) + behind(v.Elem())
		}
	case reflect.Slice:
		size = v.Cap() * int(v.Type().Elem().Size())
		if hasReferences(v.Type().Elem()) {
			for i := range v.Len() {
				size += behind(v.Index(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			size += behind(v.Index(i))
		}
	case reflect.Map:
		size = v.Len() * int(v.Type().Key().Size()+v.Type().Elem().Size()) * 2
		for of := v.MapRange(); of.Next(); {
			size += behind(of.Key()) + behind(of.Value())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return 0 // all times share what they refer to
		}
		for i := range v.NumField() {
			size += behind(v.Field(i))
		}
	}
	return size
}

// hasReferences is false for the elements of texts and of numbers, which are many.
func hasReferences(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return true
	}
	return false
}
