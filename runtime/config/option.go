// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Option is one configuration key with its flag.
type Option struct {
	Name, Shorthand string
	Usage           string
	Type            string // as help prints it
	Default         string // as help prints it
	Hidden          bool
	Deprecated      string // why, or ""
	Module          string // id of the module that owns it
	// Ignored options are accepted and do nothing: their module was replaced.
	Ignored bool

	bare string // the value of the flag without one ("true" for bools), or ""
}

// Struct is a config struct and the options that fill it.
type Struct struct {
	Module   string
	Type     reflect.Type
	defaults reflect.Value
	fields   []field
}

type field struct {
	option *Option
	index  []int
	decode decoder
}

// Schema is all options of a hive.
type Schema struct {
	Structs []*Struct
	options map[string]*Option
	ordered []*Option
}

// NewSchema returns a schema without options.
func NewSchema() *Schema { return &Schema{options: map[string]*Option{}} }

// Options are all options in the order of their declaration.
func (s *Schema) Options() []*Option { return s.ordered }

// Option is the option of the given name, or nil.
func (s *Schema) Option(name string) *Option { return s.options[name] }

// Names are the names of all options in the order of their declaration.
func (s *Schema) Names() []string {
	names := make([]string, len(s.ordered))
	for i, o := range s.ordered {
		names[i] = o.Name
	}
	return names
}

// DuplicateError says that two modules declare one flag.
type DuplicateError struct {
	Flag          string
	First, Second string // module ids
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("flag --%s is declared by %s and by %s", e.Flag, e.First, e.Second)
}

// Add declares a config struct of a module. The errors name what is wrong with
// the declaration: a flag without a field or the reverse, a type that cannot
// be decoded, or a [DuplicateError].
func (s *Schema) Add(module string, defaults reflect.Value, flags func(*pflag.FlagSet)) []error {
	st := &Struct{Module: module, Type: defaults.Type(), defaults: defaults}
	if st.Type.Kind() != reflect.Struct {
		return []error{fmt.Errorf("config %s is no struct; pass the struct by value", st.Type)}
	}
	byName := map[string]*fieldInfo{}
	collectFields(st.Type, nil, byName)

	var errs []error
	for _, f := range declaredFlags(flags) {
		info := byName[fieldKey(f.Name)]
		if info == nil {
			errs = append(errs, fmt.Errorf("flag --%s has no field in %s; name one %s or tag it flag:%q",
				f.Name, st.Type, exampleField(f.Name), f.Name))
			continue
		}
		info.used = true
		decode, err := decoderOf(info.typ)
		if err != nil {
			errs = append(errs, fmt.Errorf("field %s.%s: %w", st.Type, info.name, err))
			continue
		}
		o := newOption(module, f)
		if err := s.add(o); err != nil {
			errs = append(errs, err)
			continue
		}
		st.fields = append(st.fields, field{option: o, index: info.index, decode: decode})
	}
	for _, info := range byName {
		if !info.used {
			errs = append(errs, fmt.Errorf("field %s.%s has no flag; declare one in Flags or tag it flag:\"-\"", st.Type, info.name))
		}
	}
	slices.SortStableFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	s.Structs = append(s.Structs, st)
	return errs
}

// Ignore accepts the flags of a replaced module, except those declared anew.
func (s *Schema) Ignore(module string, flags func(*pflag.FlagSet)) {
	for _, f := range declaredFlags(flags) {
		if s.options[f.Name] == nil {
			o := newOption(module, f)
			o.Ignored, o.Hidden = true, true
			_ = s.add(o) // cannot be a duplicate
		}
	}
}

func (s *Schema) add(o *Option) error {
	if first := s.options[o.Name]; first != nil {
		return &DuplicateError{Flag: o.Name, First: first.Module, Second: o.Module}
	}
	s.options[o.Name] = o
	s.ordered = append(s.ordered, o)
	return nil
}

func newOption(module string, f *pflag.Flag) *Option {
	return &Option{
		Name: f.Name, Shorthand: f.Shorthand, Usage: f.Usage,
		Type: f.Value.Type(), Default: f.DefValue,
		Hidden: f.Hidden, Deprecated: f.Deprecated,
		Module: module, bare: f.NoOptDefVal,
	}
}

func declaredFlags(declare func(*pflag.FlagSet)) []*pflag.Flag {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	declare(fs)
	var flags []*pflag.Flag
	fs.VisitAll(func(f *pflag.Flag) { flags = append(flags, f) })
	return flags
}

type fieldInfo struct {
	name  string
	typ   reflect.Type
	index []int
	used  bool
}

func collectFields(t reflect.Type, outer []int, into map[string]*fieldInfo) {
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(slices.Clone(outer), i)
		tag := f.Tag.Get("flag")
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct && tag == "":
			collectFields(f.Type, index, into)
		case !f.IsExported() || tag == "-":
		default:
			name := f.Name
			if tag != "" {
				name = tag
			}
			into[fieldKey(name)] = &fieldInfo{name: f.Name, typ: f.Type, index: index}
		}
	}
}

// fieldKey is what a flag and its field have in common.
func fieldKey(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "")) }

// exampleField is the field name that a flag would match.
func exampleField(flag string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(flag, "-") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}
