// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package decl

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"strings"
)

// Location is a place in the source. It is kept as a program counter and read
// only when somebody looks, so that declaring costs next to nothing.
type Location struct {
	pc    uintptr
	entry bool // pc is a function's entry, not a call's return address
}

// Caller is the place of the caller skip frames above the function that calls
// it.
func Caller(skip int) Location {
	var pcs [1]uintptr
	runtime.Callers(skip+3, pcs[:])
	return Location{pc: pcs[0]}
}

// String is the place as import path, file and line: it reads the same on
// every machine. Places in this project are given from its root.
func (l Location) String() string {
	frame, ok := l.frame()
	if !ok {
		return "unknown place"
	}
	file := path.Join(packageOf(frame.Function), path.Base(frame.File))
	return fmt.Sprintf("%s:%d", strings.TrimPrefix(file, project), frame.Line)
}

func (l Location) frame() (runtime.Frame, bool) {
	if l.pc == 0 {
		return runtime.Frame{}, false
	}
	if l.entry {
		fn := runtime.FuncForPC(l.pc)
		file, line := fn.FileLine(l.pc)
		return runtime.Frame{Function: fn.Name(), File: file, Line: line}, true
	}
	frame, _ := runtime.CallersFrames([]uintptr{l.pc}).Next()
	return frame, frame.Function != ""
}

// project is this project's import path with a slash.
var project = strings.TrimSuffix(reflect.TypeFor[Location]().PkgPath(), "runtime/internal/decl")

// packageOf cuts the import path out of a function's full name.
func packageOf(function string) string {
	slash := strings.LastIndexByte(function, '/')
	dot := strings.IndexByte(function[slash+1:], '.')
	if dot < 0 {
		return function
	}
	return function[:slash+1+dot]
}

// shortName turns "example.com/a/kvstore.(*client).hook-fm" into
// "kvstore.(*client).hook", and says of a function literal only whose it is.
func shortName(function string) string {
	name := function[strings.LastIndexByte(function, '/')+1:]
	name = strings.TrimSuffix(name, "-fm")
	name = strings.ReplaceAll(name, "[...]", "")
	pkg, rest, _ := strings.Cut(name, ".")
	if strings.HasPrefix(rest, "init.") || strings.HasPrefix(rest, "glob..") || rest == "init" {
		return "func literal in " + pkg
	}
	if outer, _, ok := strings.Cut(name, ".func"); ok && strings.Contains(outer, ".") {
		return "func literal in " + outer
	}
	return name
}

// Place is the location in two lines of a printed stack: the call and, indented,
// its file and line.
func Place(call, file string) string {
	function, _, _ := strings.Cut(call, "(0x")
	function, _, _ = strings.Cut(function, "(...)")
	file, _, _ = strings.Cut(strings.TrimSpace(file), " ")
	return strings.TrimPrefix(path.Join(packageOf(function), path.Base(file)), project)
}
