// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cell

import (
	"fmt"
	"reflect"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/internal/decl"
)

// Flagger is a config struct. Flags declares one flag per field, with the
// receiver's values as defaults. A flag belongs to the field of its name
// without dashes, letter case aside, or to the one tagged flag:"its-name".
// Every flag has a field, every field a flag, and every flag one owner.
//
// A field is a basic type, a time.Duration, an encoding.TextUnmarshaler, a list
// of these or a map of strings; one tagged flag:"-" is left alone. A struct with
// a method Validate() error is asked once it is filled, if its module is on; see
// [Invalid] for how to name the flag at fault.
type Flagger interface{ Flags(*pflag.FlagSet) }

// Config provides the struct to every module, filled from flags, environment,
// files and the given defaults, in that order of precedence.
func Config[C Flagger](defaults C) Cell {
	return declared{&decl.Config{Defaults: reflect.ValueOf(defaults), Flags: defaults.Flags, Where: decl.Caller(0)}}
}

// FromEnv has a flag that is declared in fs read from further environment
// variables, the first one that is set, where its own variable is not.
func FromEnv(fs *pflag.FlagSet, flag string, variables ...string) {
	if err := fs.SetAnnotation(flag, config.EnvAnnotation, variables); err != nil {
		panic(err) // a mistake of the cell, told along with the others of the list
	}
}

// Accept declares flags that do nothing, such as those of duties that are gone
// or not there yet. Their values can be read from the *config.Values.
func Accept(flags func(*pflag.FlagSet)) Cell {
	return declared{&decl.Config{Flags: flags, Ignored: true, Where: decl.Caller(0)}}
}

// Validate adds a rule over config structs: a function that takes one or more
// of them and returns an error. Rules of disabled modules are not asked.
func Validate(rule any) Cell {
	return declared{&decl.Validate{Fn: decl.FuncOf(rule, decl.Caller(0))}}
}

// InvalidError says that a flag's value cannot be used. The report that shows
// it adds the value and where it came from. Validate methods and rules return
// it, and constructors that find out only when they use the value.
type InvalidError struct {
	Flag    string
	Problem string // what is allowed, as a sentence part: "must be between 1 and 32"
}

func (e *InvalidError) Error() string { return "--" + e.Flag + ": " + e.Problem }

// Invalid is an error for a flag's value; several are joined with errors.Join.
func Invalid(flag, format string, args ...any) error {
	return &InvalidError{Flag: flag, Problem: fmt.Sprintf(format, args...)}
}

// Condition is a named predicate over config structs. It is a value to be
// shared by the modules that depend on it.
type Condition struct{ condition decl.Condition }

// When makes a condition. The name reads after "needs that" (kvstore is in
// use); flags are those a user would change to make it true or false;
// predicate is a function of one or more config structs that returns bool.
func When(name string, flags []string, predicate any) Condition {
	return Condition{decl.Condition{Name: name, Flags: flags, Fn: decl.FuncOf(predicate, decl.Caller(0))}}
}

// EnabledBy switches the module that it stands in; outside modules, the whole
// list or term. Several conditions, of one module or of modules around it, must
// all hold.
func EnabledBy(c Condition) Cell {
	return declared{&decl.EnabledBy{Condition: c.condition}}
}
