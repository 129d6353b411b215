// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// A field with the tag usage declares its flag:
//
//	Interval time.Duration `flag:"nodes-gc-interval" usage:"Interval between sweeps" min:"100ms" zero:"disables the sweep"`
//
// Further tags: short, the shorthand; min, max and oneof, the values allowed; zero, the effect of 0 where 0 is allowed
// besides these; hidden and deprecated as pflag has them; env, further environment variables; list:"white space", for a
// list whose elements stand between white space.

// taggedField is a field whose tags declare its flag.
type taggedField struct {
	name  string // of the flag
	tag   reflect.StructTag
	index []int
	typ   reflect.Type
}

// taggedFields calls visit for the fields of a struct, embedded ones included, whose tags declare a flag.
func taggedFields(t reflect.Type, outer []int, visit func(taggedField)) {
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(slices.Clone(outer), i)
		name, named := f.Tag.Lookup("flag")
		_, declared := f.Tag.Lookup("usage")
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct && !named:
			taggedFields(f.Type, index, visit)
		case f.IsExported() && declared && name != "" && name != "-":
			visit(taggedField{name, f.Tag, index, f.Type})
		}
	}
}

// TagFlags declares the flags that the tags of a config struct describe. Tags that cannot be used declare nothing;
// [Schema.Add] reports them.
func TagFlags(fs *pflag.FlagSet, defaults reflect.Value) {
	if defaults.Kind() != reflect.Struct {
		return
	}
	taggedFields(defaults.Type(), nil, func(f taggedField) {
		value := newTagValue(defaults.FieldByIndex(f.index))
		if value == nil {
			return
		}
		flag := fs.VarPF(value, f.name, f.tag.Get("short"), f.tag.Get("usage"))
		if f.typ.Kind() == reflect.Bool {
			flag.NoOptDefVal = "true"
		}
		flag.Hidden = f.tag.Get("hidden") == "true"
		if why := f.tag.Get("deprecated"); why != "" {
			flag.Deprecated, flag.Hidden = why, true
		}
		flag.Annotations = map[string][]string{}
		if env := f.tag.Get("env"); env != "" {
			flag.Annotations[EnvAnnotation] = strings.Split(env, ",")
		}
		if list := f.tag.Get("list"); list != "" {
			flag.Annotations[ListAnnotation] = []string{list}
		}
	})
}

// tagValue names the type and the default of a flag; the value is decoded from its text elsewhere.
type tagValue struct{ typ, text string }

func (v *tagValue) String() string   { return v.text }
func (v *tagValue) Type() string     { return v.typ }
func (v *tagValue) Set(string) error { return nil }

// newTagValue is nil for a type that no flag can have.
func newTagValue(v reflect.Value) pflag.Value {
	if _, err := decoderOf(v.Type()); err != nil {
		return nil
	}
	typ := v.Kind().String()
	switch _, isText := marshalText(v); {
	case isText:
		typ = "text"
	case v.Type() == durationType:
		typ = "duration"
	case v.Kind() == reflect.Slice:
		typ = "stringSlice"
	case v.Kind() == reflect.Map:
		typ = "stringToString"
	}
	return &tagValue{typ, format(v)}
}

// checkTags finds tags that cannot be used.
func checkTags(t reflect.Type, f reflect.StructField) (errs []error) {
	bad := func(fix, format string, args ...any) {
		errs = append(errs, mistake(fix, "field %s.%s "+format, append([]any{t, f.Name}, args...)...))
	}
	_, declared := f.Tag.Lookup("usage")
	if declared && !f.IsExported() {
		bad("export it", "declares a flag and cannot be set")
	}
	if declared && f.Tag.Get("flag") == "" {
		bad(`add flag:"its-name"`, "has the tag usage and no name of a flag")
	}
	for _, key := range []string{"min", "max"} {
		if limit, ok := f.Tag.Lookup(key); ok {
			if _, err := parseLimit(limit, f.Type); err != nil {
				bad("write a number or a duration such as the field holds", "has the tag %s:%q, which its type cannot hold", key, limit)
			}
		}
	}
	for _, key := range []string{"usage", "min", "max", "zero", "oneof", "hidden", "deprecated", "env", "list", "short"} {
		if _, ok := f.Tag.Lookup(key); ok && f.Tag.Get("flag") == "-" {
			bad(`remove it, or flag:"-"`, "has the tag %s and no flag", key)
		}
	}
	return errs
}

// Violation is a value that the tags of its field do not allow.
type Violation struct{ Flag, Problem string }

// Violations compares the fields of a config struct with their tags.
func Violations(v reflect.Value) (list []Violation) {
	if v.Kind() != reflect.Struct {
		return nil
	}
	taggedFields(v.Type(), nil, func(f taggedField) {
		if problem := f.check(v.FieldByIndex(f.index)); problem != "" {
			list = append(list, Violation{f.name, problem})
		}
	})
	return list
}

// check is what the tags allow, if they do not allow the value.
func (f taggedField) check(v reflect.Value) string {
	if oneOf, ok := f.tag.Lookup("oneof"); ok {
		if allowed := strings.Split(oneOf, ","); !slices.Contains(allowed, format(v)) {
			return "must be " + alternatives(allowed)
		}
	}
	low, hasLow := f.tag.Lookup("min")
	high, hasHigh := f.tag.Lookup("max")
	zero, zeroAllowed := f.tag.Lookup("zero")
	if !hasLow && !hasHigh || zeroAllowed && v.IsZero() {
		return ""
	}
	least, _ := parseLimit(low, f.typ)
	most, _ := parseLimit(high, f.typ)
	if (!hasLow || !less(v, least)) && (!hasHigh || !less(most, v)) {
		return ""
	}
	problem := "must be at least " + fmt.Sprint(least)
	switch {
	case hasLow && hasHigh:
		problem = fmt.Sprintf("must be between %v and %v", least, most)
	case hasHigh:
		problem = fmt.Sprintf("must be at most %v", most)
	}
	if zeroAllowed {
		problem += ", or 0, which " + zero
	}
	return problem
}

func alternatives(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

// parseLimit reads a limit as a value of the field's type.
func parseLimit(text string, t reflect.Type) (reflect.Value, error) {
	v := reflect.New(t).Elem()
	switch {
	case t == durationType:
		return v, decodeDuration(text, v)
	case v.CanInt():
		return v, decodeInt(text, v)
	case v.CanUint():
		return v, decodeUint(text, v)
	case v.CanFloat():
		return v, decodeFloat(text, v)
	}
	return v, strconv.ErrSyntax
}

func less(a, b reflect.Value) bool {
	switch {
	case a.CanInt() && b.CanInt():
		return a.Int() < b.Int()
	case a.CanUint() && b.CanUint():
		return a.Uint() < b.Uint()
	case a.CanFloat() && b.CanFloat():
		return !(a.Float() >= b.Float()) // NaN is below all
	}
	return false
}
