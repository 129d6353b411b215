// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// A plan is the table that decodes one message of a full type into a slim
// struct. Field numbers come from the struct tags of the full type, so a plan
// follows it by itself; wire types come from its Go types, because the tags are
// not right everywhere (EndpointConditions.ready is tagged bytes).
type plan struct {
	ops []op // by field number; kind opSkip for what is not kept
}

type opKind uint8

const (
	opSkip     opKind = iota
	opBool            // bool
	opInt             // signed and unsigned integers of op.size bytes
	opString          // string, copied
	opIntern          // String
	opRevision        // Revision
	opUID             // UID
	opCustom          // FieldDecoder
	opFull            // a type of the full object, which unmarshals itself
	opMessage         // struct, with a plan of its own
	opPointer         // *elem, set if the field is there
	opSlice           // []elem
)

type op struct {
	kind   opKind
	wire   protowire.Type
	size   uint8
	offset uintptr
	typ    reflect.Type // opCustom, opFull, opPointer, opSlice: of the slim field
	plan   *plan        // opMessage
	elem   *op          // opPointer, opSlice: with offset 0
}

// maxDepth bounds how deep slim structs nest.
const maxDepth = 32

// compile makes the plan for slim out of full, both structs.
func compile(slim, full reflect.Type) (*plan, error) {
	p := &plan{}
	return p, p.addFields(slim, full, 0, slim.Name())
}

func (p *plan) addFields(slim, full reflect.Type, base uintptr, path string) error {
	if strings.Count(path, ".") > maxDepth {
		return fmt.Errorf("%s: too deep; slim types cannot be recursive", path)
	}
	var errs []error
	for i := range slim.NumField() {
		f := slim.Field(i)
		name, inline := jsonName(f)
		at := path + "." + f.Name
		switch {
		case name == "-":
		case inline:
			errs = append(errs, p.addFields(f.Type, full, base+f.Offset, at))
		case !f.IsExported() && !f.Anonymous:
			errs = append(errs, fmt.Errorf("%s is not exported, so it would never be set: export it or tag it `json:\"-\"`", at))
		default:
			if err := p.addField(f, full, name, base+f.Offset, at); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// otherCase names the field of the same letters, if there is one: names are compared with case.
func otherCase(full reflect.Type, name string) string {
	for i := range full.NumField() {
		field, _, _ := strings.Cut(full.Field(i).Tag.Get("json"), ",")
		if strings.EqualFold(field, name) {
			return "; did you mean " + field + "?"
		}
	}
	return ""
}

func (p *plan) addField(f reflect.StructField, full reflect.Type, name string, offset uintptr, at string) error {
	numbers, fullType, ok := findField(full, name)
	if !ok {
		return fmt.Errorf("%s: %s has no field %q%s", at, full, name, otherCase(full, name))
	}
	o, err := newOp(f.Type, fullType, at)
	if err != nil {
		return err
	}
	o.offset = offset
	return p.insert(numbers, *o, at)
}

// insert puts o under the field numbers that lead to it: more than one if the
// full type embeds a struct, which JSON shows inline and protobuf does not.
func (p *plan) insert(numbers []protowire.Number, o op, at string) error {
	num := numbers[0]
	for int(num) >= len(p.ops) {
		p.ops = append(p.ops, op{})
	}
	slot := &p.ops[num]
	if len(numbers) > 1 {
		if slot.kind == opSkip {
			*slot = op{kind: opMessage, wire: protowire.BytesType, plan: &plan{}}
		}
		return slot.plan.insert(numbers[1:], o, at)
	}
	switch {
	case slot.kind != opSkip:
		return fmt.Errorf("%s: another field has the same JSON name", at)
	case o.kind == opCustom && num >= doneBits:
		return fmt.Errorf("%s: a FieldDecoder cannot have field number %d, only up to %d", at, num, doneBits-1)
	}
	*slot = o
	return nil
}

var (
	fieldDecoderType = reflect.TypeFor[FieldDecoder]()
	unmarshalerType  = reflect.TypeFor[unmarshaler]()
)

// unmarshaler is what the full types' messages implement.
type unmarshaler interface{ Unmarshal([]byte) error }

// newOp says how a field of type slim is set from one of type full.
func newOp(slim, full reflect.Type, at string) (*op, error) {
	o := &op{typ: slim, wire: protowire.BytesType}
	for full.Kind() == reflect.Pointer {
		full = full.Elem()
	}
	mismatch := func(what string) error {
		return fmt.Errorf("%s: a %s cannot keep %s, which is %s: %s", at, slim, full, full.Kind(), what)
	}
	ptr := reflect.PointerTo(slim)
	switch {
	case ptr.Implements(fieldDecoderType):
		o.kind = opCustom
		if err := reflect.New(slim).Interface().(FieldDecoder).AcceptsField(full); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		return o, nil
	case slim == full && slim.Kind() == reflect.Struct && ptr.Implements(unmarshalerType):
		o.kind = opFull
		return o, nil
	}
	switch slim {
	case reflect.TypeFor[String](), reflect.TypeFor[Revision](), reflect.TypeFor[UID]():
		o.kind = map[reflect.Type]opKind{
			reflect.TypeFor[String](): opIntern, reflect.TypeFor[Revision](): opRevision, reflect.TypeFor[UID](): opUID,
		}[slim]
		if full.Kind() != reflect.String {
			return nil, mismatch("it keeps strings")
		}
		return o, nil
	}
	switch kind := slim.Kind(); {
	case kind == reflect.Pointer:
		o.kind = opPointer
		if err := o.setElem(full, at); err != nil {
			return nil, err
		}
		switch o.elem.kind {
		case opCustom, opPointer, opSlice:
			return nil, mismatch("use " + slim.Elem().String() + ", whose zero value means that the field is not there")
		}
		return o, nil
	case kind == reflect.Slice && full.Kind() == reflect.Slice && full.Elem().Kind() != reflect.Uint8:
		o.kind = opSlice
		return o, o.setElem(full.Elem(), at)
	case kind == reflect.String && full.Kind() == reflect.String:
		o.kind = opString
	case kind == reflect.Bool && full.Kind() == reflect.Bool:
		o.kind, o.wire = opBool, protowire.VarintType
	case isInt(kind) && isInt(full.Kind()):
		if slim.Size() < full.Size() || isSigned(kind) != isSigned(full.Kind()) {
			return nil, mismatch("values would be cut; use " + full.Kind().String())
		}
		o.kind, o.wire, o.size = opInt, protowire.VarintType, uint8(slim.Size())
	case kind == reflect.Struct && full.Kind() == reflect.Struct:
		var err error
		o.kind = opMessage
		o.plan = &plan{}
		err = o.plan.addFields(slim, full, 0, at)
		return o, err
	default:
		return nil, mismatch("use the same kind, slim.Labels for a map of strings, or a type that implements slim.FieldDecoder")
	}
	return o, nil
}

func (o *op) setElem(full reflect.Type, at string) (err error) {
	o.elem, err = newOp(o.typ.Elem(), full, at)
	if err == nil {
		o.wire = o.elem.wire
	}
	return err
}

func isInt(k reflect.Kind) bool { return reflect.Int <= k && k <= reflect.Uint64 }

func isSigned(k reflect.Kind) bool { return reflect.Int <= k && k <= reflect.Int64 }

// jsonName returns the JSON name of a field, and whether its own fields show in
// its place instead.
func jsonName(f reflect.StructField) (name string, inline bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct || options == "inline" {
		return "", true
	}
	if name == "" {
		name = f.Name
	}
	return name, false
}

// findField returns the type of full's field with this JSON name and the field
// numbers that lead to it.
func findField(full reflect.Type, name string) (numbers []protowire.Number, typ reflect.Type, ok bool) {
	for i := range full.NumField() {
		f := full.Field(i)
		num := tagNumber(f)
		if num == 0 {
			continue
		}
		fieldName, inline := jsonName(f)
		if inline {
			if rest, typ, ok := findField(f.Type, name); ok {
				return append([]protowire.Number{num}, rest...), typ, true
			}
			continue
		}
		if fieldName == name {
			return []protowire.Number{num}, f.Type, true
		}
	}
	return nil, nil, false
}

// tagNumber reads the field number of a tag like `protobuf:"bytes,2,opt,name=spec"`.
func tagNumber(f reflect.StructField) protowire.Number {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0
	}
	n, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil {
		return 0
	}
	return protowire.Number(n)
}

// FieldNumber returns the protobuf number of the field of Full with this JSON
// name, for FieldDecoders that walk messages themselves. It is 0, which no
// field has, if Full has no such field of its own.
func FieldNumber[Full any](name string) protowire.Number {
	numbers, _, ok := findField(reflect.TypeFor[Full](), name)
	if !ok || len(numbers) != 1 {
		return 0
	}
	return numbers[0]
}
