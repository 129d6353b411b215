// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cell

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/internal/decl"
)

// Flagger is a config struct that declares flags, or some of them, by a method; see [Config].
type Flagger interface{ Flags(*pflag.FlagSet) }

// Config provides the struct to every module, filled from flags, environment,
// files and the given defaults, in that order of precedence.
//
// Flags are declared by the tags of the fields:
//
//	Interval time.Duration `flag:"nodes-gc-interval" usage:"Interval between sweeps" min:"100ms" zero:"disables the sweep"`
//
// flag is the name and usage the help text. min, max and oneof (values with commas between) say what is allowed, and
// zero that 0 is, too, with its effect. short is the shorthand; hidden:"true" and deprecated:"why" are what pflag makes
// of them; env names further environment variables, the first one that is set counts where the flag's own is not;
// list:"white space" has a list split at white space, see [config.WhiteSpaceList].
//
// A struct may declare flags by a method instead, as a [Flagger], with the receiver's values as defaults. Such a flag
// belongs to the field of its name without dashes, letter case aside, or to the one tagged flag:"its-name". Every flag
// has a field, every field a flag, and every flag one owner. A field tagged flag:"-" is left alone.
//
// A field is a basic type, a time.Duration, an encoding.TextUnmarshaler, a list of these or a map of strings. A struct
// with a method Validate() error is validated by it, too, if its module is enabled; see [Invalid] for how to name the
// flag at fault.
func Config[C any](defaults C) Cell {
	v := reflect.ValueOf(defaults)
	declare := func(fs *pflag.FlagSet) {
		config.TagFlags(fs, v)
		if f, ok := any(defaults).(Flagger); ok {
			f.Flags(fs)
		}
	}
	return declared{&decl.Config{Defaults: v, Flags: declare, Where: decl.Caller(0)}}
}

// ValidateConfig validates a config struct, given as a pointer or by value: by the tags of its fields, and by its method
// Validate, if there is one. What the method says of a flag whose value the tags do not allow is left out.
func ValidateConfig(c any) error {
	v := reflect.Indirect(reflect.ValueOf(c))
	var errs []error
	refused := map[string]bool{}
	for _, violation := range config.Violations(v) {
		refused[violation.Flag] = true
		errs = append(errs, Invalid(violation.Flag, "%s", violation.Problem))
	}
	if checked, ok := c.(interface{ Validate() error }); ok {
		for _, err := range unjoin(checked.Validate()) {
			if e := new(InvalidError); !errors.As(err, &e) || !refused[e.Flag] {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// unjoin is the list of errors that are joined in one.
func unjoin(err error) []error {
	switch e := err.(type) {
	case nil:
		return nil
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return []error{err}
}

// FromEnv has a flag that is declared in fs read from further environment
// variables, the first one that is set, where its own variable is not.
func FromEnv(fs *pflag.FlagSet, flag string, variables ...string) {
	if err := fs.SetAnnotation(flag, config.EnvAnnotation, variables); err != nil {
		panic(err) // a mistake of the cell, reported along with the others of the list
	}
}

// IgnoredFlags declares flags that do nothing, such as those of duties that are gone
// or not there yet. Their values can be read from the *config.Values.
func IgnoredFlags(flags func(*pflag.FlagSet)) Cell {
	return declared{&decl.Config{Flags: flags, Ignored: true, Where: decl.Caller(0)}}
}

// Validate adds a rule over config structs: a function that takes one or more
// of them and returns an error. It may also take a *config.Values, the [BuildInfo]
// and a graph.Source. Rules of disabled modules are not asked.
func Validate(rule any) Cell {
	return declared{&decl.Validate{Fn: decl.FuncOf(rule, decl.Caller(0))}}
}

// Check adds a function, func() error, that finds mistakes in what its module declares, such as a type that does
// not fit. It is called when the graph is resolved, and does no I/O.
func Check(check any) Cell {
	return declared{&decl.Check{Fn: decl.FuncOf(check, decl.Caller(0))}}
}

// InvalidError says that a flag's value cannot be used. The report that shows
// it adds the value and where it came from. Validate methods and rules return
// it, and constructors that find out only when they use the value.
type InvalidError struct {
	Flag    string
	Problem string // what is allowed, as a sentence part: "must be between 1 and 32"
	// Questionable values are used all the same, see [Questionable].
	Questionable bool
}

func (e *InvalidError) Error() string { return "--" + e.Flag + ": " + e.Problem }

// Invalid is an error for a flag's value; several are joined with errors.Join.
func Invalid(flag, format string, args ...any) error {
	return &InvalidError{Flag: flag, Problem: fmt.Sprintf(format, args...)}
}

// Questionable is an error for a flag's value that is hardly meant and can be used: one that the original runs
// with, so that an upgrade must not fail on it. The process starts with the value. It is a warning at the start and
// of the validate command, and the module is degraded. --strict-config refuses it. Only Validate methods and
// rules return it.
func Questionable(flag, format string, args ...any) error {
	return &InvalidError{Flag: flag, Problem: fmt.Sprintf(format, args...), Questionable: true}
}

// Condition is a named predicate over config structs. It is a value to be
// shared by the modules that depend on it.
type Condition struct{ condition decl.Condition }

// When makes a condition. The name reads after "needs that" (kvstore is in
// use); flags are those a user would change to make it true or false;
// predicate is a function of one or more config structs, or of *config.Values,
// that returns bool.
func When(name string, flags []string, predicate any) Condition {
	return Condition{decl.Condition{Name: name, Flags: flags, Fn: decl.FuncOf(predicate, decl.Caller(0))}}
}

// EnabledBy switches the module that it stands in; outside modules, the whole
// list or term. Several conditions, of one module or of modules around it, must
// all hold.
func EnabledBy(c Condition) Cell {
	return declared{&decl.EnabledBy{Condition: c.condition}}
}
