// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// Lookup finds the filled config struct of a type.
type Lookup func(reflect.Type) (reflect.Value, bool)

// EvaluateConditions evaluates the conditions of all modules.
func (g *Graph) EvaluateConditions(configs Lookup) {
	for _, m := range g.Modules {
		m.Enabled = m.Parent == nil || m.Parent.Enabled
		for i := range m.Conditions {
			c := &m.Conditions[i]
			c.Holds = g.evaluate(m, c, configs)
			m.Enabled = m.Enabled && c.Holds
		}
	}
	for _, n := range g.notBuilt {
		n.Asked.Holds = g.evaluate(g.root, &n.Asked, configs)
	}
	g.runChecks()
	g.validators = slices.DeleteFunc(g.validators, func(v *Validator) bool {
		return !g.checkConfigs("a rule", v.Fn, v.Module, configs)
	})
}

// runChecks runs the checks of enabled modules.
func (g *Graph) runChecks() {
	for _, c := range g.checks {
		if !c.module.Enabled {
			continue
		}
		out, err := CallWithConfigs(c.fn, nil)
		if err == nil {
			err, _ = reflect.TypeAssert[error](out[0])
		}
		if err == nil {
			continue
		}
		what, more, _ := strings.Cut(err.Error(), "\n")
		problem := g.problem(kindBroken, what)
		for line := range strings.Lines(more) {
			problem.add("and", strings.TrimSpace(line))
		}
		problem.add("declared", inModule(c.fn.Where, c.module))
	}
}

func (g *Graph) evaluate(m *Module, c *Condition, configs Lookup) (holds bool) {
	what := fmt.Sprintf("the condition %q", c.Name)
	if !g.checkConfigs(what, c.fn, m, configs) {
		return false
	}
	out, err := CallWithConfigs(c.fn, configs)
	if err != nil {
		g.problem("panicking condition", fmt.Sprintf("%s: %v", what, err)).
			add("declared", c.fn.Where.String()).add("in", m.Label()).
			fix("let it compare what is in the structs, and nothing else")
		return false
	}
	return out[0].Bool()
}

// Evaluate evaluates a condition of a module that is not in the graph.
func Evaluate(c decl.Condition, configs Lookup) (holds bool, err error) {
	if missing := undeclared(c.Fn, configs); missing != nil {
		return false, fmt.Errorf("%s is not declared", typeName(missing))
	}
	out, err := CallWithConfigs(c.Fn, configs)
	if err != nil || len(out) != 1 || out[0].Kind() != reflect.Bool {
		return false, err
	}
	return out[0].Bool(), nil
}

// checkConfigs checks that what a function takes is declared as config.
func (g *Graph) checkConfigs(what string, fn decl.Func, m *Module, configs Lookup) bool {
	missing := undeclared(fn, configs)
	if missing == nil {
		return true
	}
	g.problem("unknown config", fmt.Sprintf("%s takes %s, which no cell declares", what, typeName(missing))).
		add("declared", fn.Where.String()).add("in", m.Label()).
		fix("declare it with cell.Config, by value")
	return false
}

// undeclared is the first type that a function takes and that is not declared as config, or nil.
func undeclared(fn decl.Func, configs Lookup) reflect.Type {
	for in := range fn.Value.Type().Ins() {
		if _, ok := configs(in); !ok {
			return in
		}
	}
	return nil
}

// Evaluable reports whether all that a condition takes is declared.
func (c Condition) Evaluable(configs Lookup) bool { return undeclared(c.fn, configs) == nil }

// CallWithConfigs calls a function of config structs that are all declared. A
// panic becomes an error.
func CallWithConfigs(fn decl.Func, configs Lookup) (out []reflect.Value, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panicked: %v", v)
		}
	}()
	t := fn.Value.Type()
	args := make([]reflect.Value, t.NumIn())
	for i := range args {
		args[i], _ = configs(t.In(i))
	}
	return fn.Value.Call(args), nil
}

// Flags are the options that enable and disable a module, outermost first.
func (m *Module) Flags() []string {
	var flags []string
	for ; m != nil; m = m.Parent {
		for _, c := range slices.Backward(m.Conditions) {
			flags = append(slices.Clone(c.Flags), flags...)
		}
	}
	return flags
}

// WhyDisabled names the conditions that disable a module, outermost first.
func (m *Module) WhyDisabled() string {
	var reasons []string
	for ; m != nil; m = m.Parent {
		for _, c := range m.Conditions {
			if c.Holds {
				continue
			}
			reason := "needs that " + c.Name
			if len(c.Flags) > 0 {
				reason += " (--" + strings.Join(c.Flags, ", --") + ")"
			}
			if m.ID != "" && m.Parent != nil {
				reason = m.ID + " " + reason
			}
			reasons = append([]string{reason}, reasons...)
		}
	}
	return strings.Join(reasons, "; ")
}
