// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/internal/plan"
)

// Validate asks the config structs and rules of enabled modules. The error is
// a *config.Report of all that is wrong.
func (h *Hive) Validate() error {
	_ = h.Select()
	return h.validated.once(func() error {
		defer h.profile.time("validate", "")()
		report := &config.Report{}
		for _, s := range h.schema.Structs {
			if m := h.plan.Module(s.Module); m == nil || m.Enabled { // nil: outside modules
				h.addProblems(report, s.Module, h.validateStruct(s.Type))
			}
		}
		for _, v := range h.plan.Validators() {
			h.addProblems(report, v.Module.ID, h.askRule(v))
		}
		return report.Err()
	})
}

// validateStruct calls the Validate method of a config struct, or of a pointer
// to it.
func (h *Hive) validateStruct(t reflect.Type) (err error) {
	v, _ := h.values.Struct(t)
	checked, ok := v.Addr().Interface().(interface{ Validate() error })
	if !ok {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("validating %s panicked: %v", t, v)
		}
	}()
	return checked.Validate()
}

func (h *Hive) askRule(v *plan.Validator) error {
	out, err := plan.CallWithConfigs(v.Fn, h.values.Struct)
	if err != nil {
		return fmt.Errorf("the rule at %s %w", v.Fn.Where, err)
	}
	err, _ = reflect.TypeAssert[error](out[0])
	return err
}

// addProblems takes an error apart: joined errors are problems of their own,
// and those made by cell.Invalid name their option.
func (h *Hive) addProblems(report *config.Report, module string, err error) {
	switch e := err.(type) {
	case nil:
		return
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			h.addProblems(report, module, part)
		}
		return
	}
	invalid := invalidIn(err)
	for _, i := range invalid {
		report.Problems = append(report.Problems, h.values.Problem(i.Flag, i.Problem))
	}
	if len(invalid) == 0 {
		report.Problems = append(report.Problems, config.Problem{Text: strings.TrimPrefix(module+": ", ": ") + err.Error()})
	}
}

// invalidIn are all errors about options that an error wraps.
func invalidIn(err error) []*cell.InvalidError {
	switch e := err.(type) {
	case *cell.InvalidError:
		return []*cell.InvalidError{e}
	case interface{ Unwrap() error }:
		return invalidIn(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*cell.InvalidError
		for _, part := range e.Unwrap() {
			all = append(all, invalidIn(part)...)
		}
		return all
	}
	return nil
}

// Check runs all phases before Build and returns what is wrong in all of
// them: mistakes in the graph, and one *config.Report about the options. While
// a source of options cannot be read, values are not judged: those in it are
// not known.
func (h *Hive) Check() error {
	report := &config.Report{}
	for _, phase := range []func() error{func() error { return h.Configure(nil) }, h.Validate} {
		if r := new(config.Report); errors.As(phase(), &r) && !report.Unread {
			report.Problems = append(report.Problems, r.Problems...)
			report.Unread = r.Unread
		}
	}
	return paragraphs(h.Select(), report.Err())
}

// aboutOptions makes errors of constructors that are about options a report on
// those: who set an option need not know what is built from it.
func (h *Hive) aboutOptions(errs []error) []error {
	report := &config.Report{}
	var others []error
	for _, err := range errs {
		if len(invalidIn(err)) > 0 {
			h.addProblems(report, "", err)
		} else {
			others = append(others, err)
		}
	}
	return append(others, report.Err())
}

// severalErrors reads with an empty line between them.
type severalErrors []error

func (s severalErrors) Unwrap() []error { return s }

func (s severalErrors) Error() string {
	texts := make([]string, len(s))
	for i, err := range s {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "\n\n")
}

// paragraphs joins errors of several lines each. Nil ones are left out.
func paragraphs(errs ...error) error {
	var list severalErrors
	for _, err := range errs {
		if err != nil {
			list = append(list, err)
		}
	}
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	return list
}
