// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"fmt"
	"io"
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

	variables []string // of the environment, read where its own is not set
	bare      string   // the value of the flag without one ("true" for bools), or ""
	several   bool     // a flag that is repeated adds to its value
	spaced    bool     // a list with white space between its elements
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

// fallbacks are the further environment variables of an option.
func (s *Schema) fallbacks(name string) []string {
	if o := s.options[name]; o != nil {
		return o.variables
	}
	return nil
}

// DuplicateError says that two modules declare one flag.
type DuplicateError struct {
	Flag          string
	First, Second string // module ids
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("flag --%s is declared by %s and by %s", e.Flag, e.First, e.Second)
}

// DeclarationError says what is wrong with a config struct and how to mend it.
type DeclarationError struct{ Problem, Fix string }

func (e *DeclarationError) Error() string { return e.Problem + "; " + e.Fix }

func mistake(fix, format string, args ...any) error {
	return &DeclarationError{Problem: fmt.Sprintf(format, args...), Fix: fix}
}

// Add declares a config struct of a module. The errors name what is wrong with
// the declaration: a [DeclarationError], such as a flag without a field or a
// type that cannot be decoded, or a [DuplicateError].
func (s *Schema) Add(module string, defaults reflect.Value, flags func(*pflag.FlagSet)) []error {
	st := &Struct{Module: module, Type: defaults.Type(), defaults: defaults}
	if st.Type.Kind() != reflect.Struct {
		return []error{mistake("pass the struct by value", "config %s is no struct", st.Type)}
	}
	byName := map[string]*fieldInfo{}
	errs := collectFields(st.Type, nil, byName)
	declared, err := declaredFlags(flags)
	if err != nil {
		return []error{mistake("declare each flag once", "config %s: %v", st.Type, err)}
	}
	for _, f := range declared {
		info := byName[fieldKey(f.Name)]
		if info == nil {
			errs = append(errs, mistake(fmt.Sprintf("name one %s or tag it flag:%q", exampleField(f.Name), f.Name),
				"flag --%s has no field in %s", f.Name, st.Type))
			continue
		}
		info.used = true
		decode, err := decoderOf(info.typ)
		if isSpaced(f) && err == nil {
			decode, err = spacedList(info.typ)
		}
		if err != nil {
			errs = append(errs, mistake("use a basic type, a duration, a list, a map of strings or an encoding.TextUnmarshaler",
				"field %s.%s: %v", st.Type, info.name, err))
			continue
		}
		o := newOption(module, f)
		o.several = isCollection(info.typ)
		o.spaced = isSpaced(f)
		o.Default = o.format(defaults.FieldByIndex(info.index))
		if err := s.add(o); err != nil {
			errs = append(errs, err)
			continue
		}
		st.fields = append(st.fields, field{option: o, index: info.index, decode: decode})
	}
	for _, info := range byName {
		if !info.used {
			errs = append(errs, mistake(`declare one in Flags or tag it flag:"-"`, "field %s.%s has no flag", st.Type, info.name))
		}
	}
	slices.SortStableFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	s.Structs = append(s.Structs, st)
	return errs
}

// Ignore accepts flags that do nothing, such as those of a replaced module,
// except those that are declared.
func (s *Schema) Ignore(module string, flags func(*pflag.FlagSet)) error {
	declared, err := declaredFlags(flags)
	if err != nil {
		return mistake("declare each flag once", "%v", err)
	}
	for _, f := range declared {
		if s.options[f.Name] == nil {
			o := newOption(module, f)
			o.Ignored, o.Hidden, o.Shorthand = true, true, ""
			o.several = slices.Contains(collections, o.Type)
			_ = s.add(o) // cannot be a duplicate
		}
	}
	return nil
}

func (s *Schema) add(o *Option) error {
	if first := s.options[o.Name]; first != nil {
		return &DuplicateError{Flag: o.Name, First: first.Module, Second: o.Module}
	}
	if o.Shorthand != "" {
		for _, other := range s.ordered {
			if other.Shorthand == o.Shorthand {
				return mistake("give it another or none", "flag --%s has the shorthand -%s, which is that of --%s", o.Name, o.Shorthand, other.Name)
			}
		}
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
		Module: module, bare: f.NoOptDefVal, variables: f.Annotations[EnvAnnotation],
	}
}

// collections are the types of flags that add to their value when they are repeated, as help prints them.
var collections = []string{"strings", "stringSlice", "stringArray", "map", "stringToString"}

// ListAnnotation is the key under which the flag of a list is annotated with [WhiteSpaceList].
const ListAnnotation = "list"

// WhiteSpaceList has a list read as agents and the original read it: from a config directory, a file or the environment
// it is split at white space only, and on the command line at commas. It is for lists of which agents have a copy and
// whose elements may contain commas, such as regular expressions.
const WhiteSpaceList = "white space"

func isSpaced(f *pflag.Flag) bool {
	return slices.Contains(f.Annotations[ListAnnotation], WhiteSpaceList)
}

// EnvAnnotation is the key under which a flag is annotated with further
// environment variables, to be read where its own is not set.
const EnvAnnotation = "env"

// FlagNames are the names of the flags that a function declares.
func FlagNames(declare func(*pflag.FlagSet)) ([]string, error) {
	flags, err := declaredFlags(declare)
	names := make([]string, len(flags))
	for i, f := range flags {
		names[i] = f.Name
	}
	return names, err
}

// declaredFlags are the flags that a function declares. Its panic is an error:
// pflag's way to say that a flag is declared twice.
func declaredFlags(declare func(*pflag.FlagSet)) (flags []*pflag.Flag, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("declaring its flags panicked: %s", strings.TrimSpace(fmt.Sprint(v)))
		}
	}()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard)
	declare(fs)
	fs.VisitAll(func(f *pflag.Flag) { flags = append(flags, f) })
	return flags, nil
}

type fieldInfo struct {
	name  string
	typ   reflect.Type
	index []int
	used  bool
}

// collectFields finds the fields that flags can belong to, by what the two have
// in common.
func collectFields(t reflect.Type, outer []int, into map[string]*fieldInfo) (errs []error) {
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(slices.Clone(outer), i)
		tag := f.Tag.Get("flag")
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct && tag == "":
			errs = append(errs, collectFields(f.Type, index, into)...)
		case !f.IsExported() || tag == "-":
			errs = append(errs, checkTags(t, f)...)
		default:
			errs = append(errs, checkTags(t, f)...)
			name := f.Name
			if tag != "" {
				name = tag
			}
			if other := into[fieldKey(name)]; other != nil {
				errs = append(errs, mistake(`tag one of them flag:"its-name"`, "fields %s and %s of %s go by the same flag", other.name, f.Name, t))
				continue
			}
			into[fieldKey(name)] = &fieldInfo{name: f.Name, typ: f.Type, index: index}
		}
	}
	return errs
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
