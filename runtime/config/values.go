// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/internal/nearest"
)

// Names of the options that say where to look; the hive declares them.
const (
	DirOption    = "config-dir"
	FileOption   = "config"
	StrictOption = "strict-config"
)

// Values is the outcome of one pass over all sources. It is not changed
// afterwards.
type Values struct {
	// Warnings are remarks about the sources that stop nothing: one line each.
	Warnings []string

	structs   map[reflect.Type]reflect.Value
	entries   map[string]Entry
	unknown   map[string]Entry
	undecoded map[string]bool // options whose value could not be decoded
	sources   Sources
}

// Deriver is implemented by pointers to config structs with fields that are no options, but follow from values of all
// sources, keys that no module declares among them. Derive is called once, when all values are decoded and before they are
// checked.
type Deriver interface{ Derive(*Values) }

// FlagSet has all options as flags that keep what they are given as text.
func (s *Schema) FlagSet(name string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = true
	for _, o := range s.ordered {
		f := fs.VarPF(&given{typ: o.Type, fallback: o.Default}, o.Name, o.Shorthand, o.Usage)
		f.NoOptDefVal = o.bare
		f.Hidden = o.Hidden
		f.DefValue = o.Default
	}
	return fs
}

// given is a flag's value as text, once per time it was given.
type given struct {
	typ, fallback string
	texts         []string
}

func (g *given) Set(s string) error { g.texts = append(g.texts, s); return nil }
func (g *given) Type() string       { return g.typ }
func (g *given) String() string {
	if g.texts == nil {
		return g.fallback
	}
	return strings.Join(g.texts, ",")
}

// Load finds and decodes all values. flags is a parsed set made by FlagSet, or
// nil. A value that cannot be decoded is in the Report that is returned as
// error, together with all others; the Values are usable all the same, with
// defaults in the places of what is wrong.
func (s *Schema) Load(src Sources, flags *pflag.FlagSet) (*Values, error) {
	l := &loading{schema: s, sources: src, flags: flags, report: &Report{}, values: &Values{
		structs:   make(map[reflect.Type]reflect.Value, len(s.Structs)),
		entries:   make(map[string]Entry, len(s.ordered)),
		unknown:   map[string]Entry{},
		undecoded: map[string]bool{},
		sources:   src,
	}}
	l.readFiles()
	for _, st := range s.Structs {
		l.fill(st)
	}
	for _, o := range s.ordered {
		if _, ok := l.values.entries[o.Name]; !ok { // no field: an ignored one
			e, found := l.find(o.Name)
			l.record(o, e, found, e.String())
		}
	}
	l.reviewUnknown()
	for _, st := range s.Structs {
		if d, is := l.values.structs[st.Type].Addr().Interface().(Deriver); is {
			d.Derive(l.values)
		}
	}
	return l.values, l.report.Err()
}

type loading struct {
	schema  *Schema
	sources Sources
	flags   *pflag.FlagSet
	files   map[string]entry
	values  *Values
	report  *Report
}

// readFiles reads the directory and the file; a file that is read replaces
// the directory.
func (l *loading) readFiles() {
	if dir, ok := l.find(DirOption); ok && dir.Text != "" {
		found, warnings, err := readDir(dir.Text)
		l.unread(err)
		l.files = found
		l.values.Warnings = append(l.values.Warnings, warnings...)
		l.foldKeys()
	}
	path, _ := l.find(FileOption)
	found, err := readFile(path.Text, l.sources.FileName)
	l.unread(err)
	if found != nil {
		l.files = found
	}
}

// foldKeys finds options in keys with capitals, as the original does, whose viper compares keys without regard to
// case. The key in lower case wins.
func (l *loading) foldKeys() {
	for _, key := range slices.Sorted(maps.Keys(l.files)) {
		name := strings.ToLower(key)
		if name == key || l.schema.options[name] == nil {
			continue
		}
		e := l.files[key]
		delete(l.files, key)
		_, twice := l.files[name]
		if !twice {
			l.files[name] = e
		}
		text := fmt.Sprintf("key %s (%s) is read as %s; keys are written in lower case", key, e.source, name)
		if twice {
			text = fmt.Sprintf("key %s (%s) is ignored, for %s is there, too; keys are written in lower case", key, e.source, name)
		}
		l.values.Warnings = append(l.values.Warnings, text)
	}
}

func (l *loading) unread(err error) {
	if err != nil {
		l.report.Unread = true
		l.report.Problems = append(l.report.Problems, Problem{Text: err.Error()})
	}
}

// find looks an option up in all sources but the default.
func (l *loading) find(name string) (entry, bool) {
	if l.flags != nil {
		if f := l.flags.Lookup(name); f != nil && f.Changed {
			raw := Raw{Repeated: f.Value.(*given).texts}
			if o := l.schema.options[name]; o == nil || !o.several { // the last one counts
				raw = Raw{Text: raw.Repeated[len(raw.Repeated)-1]}
			}
			return entry{raw, Source{Kind: FromFlag}}, true
		}
	}
	if text, source, ok := l.sources.environ(name, l.schema.fallbacks(name)); ok {
		return entry{Raw{Text: text}, source}, true
	}
	e, ok := l.files[name]
	return e, ok
}

// fill decodes one struct.
func (l *loading) fill(st *Struct) {
	v := reflect.New(st.Type).Elem()
	v.Set(st.defaults)
	for _, f := range st.fields {
		target := v.FieldByIndex(f.index)
		e, found := l.find(f.option.Name)
		if found {
			if err := decodeKeeping(f, e, target, st.defaults); err != nil {
				l.values.undecoded[f.option.Name] = true
				l.report.Problems = append(l.report.Problems, Problem{
					Option: f.option.Name, Value: e.String(), Source: e.source, Text: err.Error(),
				})
			}
		}
		l.record(f.option, e, found, f.option.format(target))
	}
	l.values.structs[st.Type] = v
}

// decodeKeeping decodes, and leaves the default where that fails.
func decodeKeeping(f field, e entry, target, defaults reflect.Value) error {
	if e.isEmpty() && !emptyAllowed(target.Type()) {
		return errors.New("is empty; leave it out for the default")
	}
	if err := f.decode(e.Raw, target); err != nil {
		target.Set(defaults.FieldByIndex(f.index))
		return err
	}
	return nil
}

func isCollection(t reflect.Type) bool {
	return (t.Kind() == reflect.Slice || t.Kind() == reflect.Map) && !reflect.PointerTo(t).Implements(textType)
}

func emptyAllowed(t reflect.Type) bool {
	return t.Kind() == reflect.String || isCollection(t) || reflect.PointerTo(t).Implements(textType)
}

func (l *loading) record(o *Option, e entry, found bool, text string) {
	source := Source{Kind: FromDefault}
	if found {
		source = e.source
		if o.Deprecated != "" {
			l.values.Warnings = append(l.values.Warnings, fmt.Sprintf("option %s (%s) is deprecated: %s", o.Name, e.source, o.Deprecated))
		}
	}
	l.values.entries[o.Name] = Entry{Name: o.Name, Value: text, Default: o.Default, Source: source, Module: o.Module, Option: o}
}

// reviewUnknown keeps the keys that no module declares, and speaks up about
// those that look like a mistyped option.
func (l *loading) reviewUnknown() {
	strict := l.values.entries[StrictOption].Value == "true"
	names := l.schema.Names()
	for _, key := range slices.Sorted(maps.Keys(l.files)) {
		if l.schema.options[key] != nil {
			continue
		}
		e := l.files[key]
		l.values.unknown[key] = Entry{Name: key, Value: e.String(), Source: e.source}
		near, ok := nearMiss(key, names)
		if !ok {
			continue
		}
		text := fmt.Sprintf("key %s (%s) is not an option of this operator; did you mean %s?", key, e.source, near)
		if strict {
			l.report.Problems = append(l.report.Problems, Problem{Text: text})
		} else {
			l.values.Warnings = append(l.values.Warnings, text)
		}
	}
	slices.Sort(l.values.Warnings)
}

// nearMiss is stricter than nearest.To: agents have some hundred options of
// their own, and most of them are a few letters from one of ours.
func nearMiss(key string, names []string) (string, bool) {
	for _, n := range names {
		if d := nearest.Distance(key, n, 3); d == 1 || d == 2 && len(key) > 12 {
			return n, true
		}
	}
	return "", false
}

// Struct is the filled config struct of the given type; ok is false where no
// cell declares it.
func (v *Values) Struct(t reflect.Type) (value reflect.Value, ok bool) {
	value, ok = v.structs[t]
	return value, ok
}

// Lookup is the text of an option or of any key of the environment, the config
// file or directory, declared or not. Case does not matter for keys.
func (v *Values) Lookup(name string) (Entry, bool) {
	if e, ok := v.entries[name]; ok {
		return e, true
	}
	if text, source, ok := v.sources.environ(name, nil); ok {
		return Entry{Name: name, Value: text, Source: source}, true
	}
	if e, ok := v.unknown[name]; ok {
		return e, true
	}
	for _, key := range slices.Sorted(maps.Keys(v.unknown)) {
		if strings.EqualFold(key, name) {
			return v.unknown[key], true
		}
	}
	return Entry{}, false
}

// Entries are all options with their effective values, by name.
func (v *Values) Entries() []Entry { return sortedEntries(v.entries) }

// Unknown are the keys of the config file or directory that no module
// declares, by name.
func (v *Values) Unknown() []Entry { return sortedEntries(v.unknown) }

// Given reports whether any source but the default has a value for the option.
func (v *Values) Given(name string) bool { return v.entries[name].Source.Kind != FromDefault }

// Undecoded reports whether an option has a value that could not be decoded: the default stands in for it.
func (v *Values) Undecoded(name string) bool { return v.undecoded[name] }

// Problem describes a value that its owner does not accept.
func (v *Values) Problem(option, text string) Problem {
	e, _ := v.Lookup(option)
	return Problem{Option: option, Value: e.Value, Source: e.Source, Text: text}
}

func sortedEntries(m map[string]Entry) []Entry {
	list := make([]Entry, 0, len(m))
	for _, e := range m {
		list = append(list, e)
	}
	slices.SortFunc(list, byName)
	return list
}
