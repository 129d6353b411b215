// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/internal/nearest"
	"github.com/skep-operator/skep/runtime/internal/resolve"
)

// Validate checks values against the config structs and rules of enabled
// modules. The error is a *config.Report of all problems.
func (h *Hive) Validate() error {
	_ = h.Select()
	return h.phase(&h.validated, EventValidated, func() error {
		report := &config.Report{}
		for _, s := range h.schema.Structs {
			if m := h.graph.Module(s.Module); m == nil || m.Enabled { // nil: outside modules
				h.addProblems(report, s.Module, h.validateStruct(s.Type), true)
			}
		}
		for _, v := range h.graph.Validators() {
			h.addProblems(report, v.Module.ID, h.callRule(v), true)
		}
		return report.Err()
	})
}

// validateStruct validates a config struct, by its tags and by its method.
func (h *Hive) validateStruct(t reflect.Type) (err error) {
	v, _ := h.values.Struct(t)
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("validating %s panicked: %v", t, v)
		}
	}()
	return cell.ValidateConfig(v.Addr().Interface())
}

func (h *Hive) callRule(v *resolve.Validator) error {
	out, err := resolve.CallWithConfigs(v.Fn, h.ruleInput)
	if err != nil {
		return fmt.Errorf("the rule at %s %w", v.Fn.Where, err)
	}
	err, _ = reflect.TypeAssert[error](out[0])
	return err
}

// ruleInput is the value of a type that conditions and rules take.
func (h *Hive) ruleInput(t reflect.Type) (reflect.Value, bool) {
	switch t {
	case reflect.TypeFor[*config.Values]():
		return reflect.ValueOf(h.values), true
	case reflect.TypeFor[cell.BuildInfo]():
		return reflect.ValueOf(h.buildInfo()), true
	case reflect.TypeFor[graph.Source]():
		return reflect.ValueOf(graph.Source(h.Graph)), true
	}
	return h.values.Struct(t)
}

// questionable is a value that is used despite an objection of its module.
type questionable struct {
	module  string
	problem config.Problem
}

// reportQuestionable degrades the modules whose options have questionable values.
func (h *Hive) reportQuestionable() {
	byModule := map[string][]string{}
	for _, q := range h.questionable {
		byModule[q.module] = append(byModule[q.module], q.problem.Message())
	}
	for id, texts := range byModule {
		h.health.Reporter(id).Child("options").Degraded(strings.Join(texts, "; "), nil)
	}
}

// addProblems takes an error apart: joined errors are problems of their own,
// and those made by cell.Invalid name their option. An option whose value could
// not be decoded has its problem already. A questionable value is none where
// these are tolerated.
func (h *Hive) addProblems(report *config.Report, module string, err error, tolerates bool) {
	switch e := err.(type) {
	case nil:
		return
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			h.addProblems(report, module, part, tolerates)
		}
		return
	}
	invalid := invalidIn(err)
	for _, i := range invalid {
		switch problem := h.problem(module, i); {
		case h.values.Undecoded(i.Flag):
		case i.Questionable && tolerates && !h.ownConfig().StrictConfig:
			h.questionable = append(h.questionable, questionable{cmp.Or(module, "hive"), problem})
		default:
			report.Problems = append(report.Problems, problem)
		}
	}
	if len(invalid) == 0 {
		report.Problems = append(report.Problems, config.Problem{Text: strings.TrimPrefix(module+": ", ": ") + err.Error()})
	}
}

// problem describes a value that its module does not accept.
func (h *Hive) problem(module string, i *cell.InvalidError) config.Problem {
	if h.schema.Option(i.Flag) != nil {
		return h.values.Problem(i.Flag, i.Problem)
	}
	text := fmt.Sprintf("%v (no cell declares --%s; %s)", i, i.Flag, h.hint(i.Flag, "name a flag of the operator"))
	return config.Problem{Text: strings.TrimPrefix(module+": ", ": ") + text}
}

// hint names the option nearest to a name that no option has.
func (h *Hive) hint(name, fallback string) string {
	return nearest.Hint(name, h.schema.Names(), fallback)
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
	if err := h.ListErr(); err != nil {
		return err // what else seems wrong may come of it
	}
	report := &config.Report{}
	for _, phase := range []func() error{func() error { return h.Configure(nil) }, h.Validate} {
		if r := new(config.Report); errors.As(phase(), &r) && !report.Unread {
			report.Problems = append(report.Problems, r.Problems...)
			report.Unread = r.Unread
		}
	}
	return joinErrors(h.Select(), report.Err())
}

// toConfigReport makes errors of constructors that are about options a report on
// those: who set an option need not know what is built from it.
func (h *Hive) toConfigReport(errs []error) []error {
	report := &config.Report{}
	var others []error
	for _, err := range errs {
		if len(invalidIn(err)) > 0 {
			h.addProblems(report, "", err, false)
		} else {
			others = append(others, err)
		}
	}
	return append(others, report.Err())
}

// multiError reads with an empty line between them.
type multiError []error

func (s multiError) Unwrap() []error { return s }

func (s multiError) Error() string {
	texts := make([]string, len(s))
	for i, err := range s {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "\n\n")
}

// joinErrors joins errors of several lines each. Nil ones are left out.
func joinErrors(errs ...error) error {
	var list multiError
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
