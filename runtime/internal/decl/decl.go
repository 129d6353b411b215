// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package decl

import (
	"reflect"
	"runtime"
	"time"

	"github.com/spf13/pflag"
)

// Node is one declaration. The set of its kinds is closed: the types below.
type Node interface{ node() }

// Module groups declarations under an id that is also log field, metric label
// and health path.
type Module struct {
	ID, Title string
	Cells     []Node
	Replaces  *Module // what an embedder swapped out for this one, if anything
	Where     Location
}

// Removed stands where an embedder took a module out, for those that mention
// its id.
type Removed struct{ Module *Module }

// Group is a list of declarations without a scope of its own.
type Group struct{ Cells []Node }

// Term groups what lives only between entering and leaving it.
type Term struct {
	Name  string
	Cells []Node
	Where Location
}

// Config is a struct filled from flags, environment and files.
type Config struct {
	Defaults reflect.Value // of the struct type
	Flags    func(*pflag.FlagSet)
	Ignored  bool // flags without a struct: accepted, and without effect
	Where    Location
}

// Validate is a rule over one or more config structs.
type Validate struct{ Fn Func }

// Visibility says who may ask for what a constructor provides.
type Visibility int

const (
	Public    Visibility = iota // every module
	Private                     // the module and those nested in it
	PerModule                   // every module, each with a value of its own
)

// Provide is a constructor.
type Provide struct {
	Fn         Func
	Visibility Visibility
	// Lasting values are built once in the process even when declared in a
	// term, and survive it.
	Lasting bool
	// Metrics marks a struct of collectors, to be registered.
	Metrics bool
}

// Invoke is a function run once at the end of the build.
type Invoke struct{ Fn Func }

// Root is a hook or a job: something that starts and stops.
type Root struct {
	Name                      string
	Fn                        Func
	Job                       bool
	StartTimeout, StopTimeout time.Duration // 0: the process-wide limit

	// Of a job that is declared by its work.
	Retry *Retry
	Every time.Duration // 0: once
}

// Retry is the pause before failed work is repeated.
type Retry struct{ First, Longest time.Duration }

// Decorate replaces a value for its module and those nested in it.
type Decorate struct{ Fn Func }

// Condition is a named predicate over config structs.
type Condition struct {
	Name  string
	Flags []string
	Fn    Func
}

// EnabledBy makes its module depend on a condition.
type EnabledBy struct{ Condition Condition }

// Order is a start-order edge that data does not express.
type Order struct {
	First  bool   // before everything else of the same scope
	After  string // or after the module of this id
	Reason string
	Where  Location
}

// Annotation attaches a value to its module; the key's type says whose it is.
type Annotation struct{ Value any }

// Check is a function that finds mistakes in what a module declares.
type Check struct{ Fn Func }

// Suggest is a function that knows how values of some types are provided.
type Suggest struct{ Fn func(reflect.Type) string }

// NotBuilt is a duty that users may ask for and no module does yet.
type NotBuilt struct {
	ID, Title string
	Asked     Condition
}

// Made is a function that was made for the caller of the function that declares it.
type Made struct {
	Fn    any
	Name  string
	Where Location
}

// Broken is a declaration that cannot be used. It is reported when the list
// is planned, so that making the list never fails.
type Broken struct {
	Problem string
	Fix     string
	Where   Location
}

func (*Module) node()     {}
func (*Removed) node()    {}
func (*Group) node()      {}
func (*Term) node()       {}
func (*Config) node()     {}
func (*Validate) node()   {}
func (*Provide) node()    {}
func (*Invoke) node()     {}
func (*Root) node()       {}
func (*Decorate) node()   {}
func (*EnabledBy) node()  {}
func (*Order) node()      {}
func (*Annotation) node() {}
func (*Check) node()      {}
func (*Suggest) node()    {}
func (*NotBuilt) node()   {}
func (*Broken) node()     {}

// Func is a function given to a cell. Its Value is the zero Value when what
// was given is no function; the planner reports that.
type Func struct {
	Value reflect.Value
	Where Location
	label string // instead of its own name
}

// FuncOf describes fn, which was given to a cell at declared.
func FuncOf(fn any, declared Location) Func {
	if m, is := fn.(Made); is {
		return Func{Value: reflect.ValueOf(m.Fn), Where: m.Where, label: m.Name}
	}
	v := reflect.ValueOf(fn)
	if v.Kind() != reflect.Func || v.IsNil() {
		return Func{Where: declared}
	}
	return Func{Value: v, Where: Location{pc: declared.pc, entry: v.Pointer()}}
}

// With is the function with another value in its place, made from it.
func (f Func) With(value reflect.Value) Func {
	f.Value = value
	return f
}

// Name is the function as a reader would write it: kvstore.newClient.
func (f Func) Name() string {
	if f.label != "" {
		return f.label
	}
	fn := runtime.FuncForPC(f.Where.entry)
	if fn == nil {
		return "?"
	}
	return ShortName(fn.Name())
}

// JoinID is the full id of a module inside another.
func JoinID(outer, id string) string {
	if outer == "" {
		return id
	}
	return outer + "." + id
}
