// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/internal/decl"
)

// Lookup finds the filled config struct of a type.
type Lookup func(reflect.Type) (reflect.Value, bool)

// Choose evaluates the conditions of all modules.
func (p *Plan) Choose(configs Lookup) {
	for _, m := range p.Modules {
		m.Enabled = m.Parent == nil || m.Parent.Enabled
		for i := range m.Conditions {
			c := &m.Conditions[i]
			c.Holds = p.evaluate(m, c, configs)
			m.Enabled = m.Enabled && c.Holds
		}
	}
	p.validators = slices.DeleteFunc(p.validators, func(v *Validator) bool {
		return !p.checkConfigs("a rule", v.Fn, v.Module, configs)
	})
}

func (p *Plan) evaluate(m *Module, c *Condition, configs Lookup) (holds bool) {
	what := fmt.Sprintf("the condition %q", c.Name)
	if !p.checkConfigs(what, c.fn, m, configs) {
		return false
	}
	out, err := CallWithConfigs(c.fn, configs)
	if err != nil {
		p.problem("panicking condition", fmt.Sprintf("%s: %v", what, err)).
			add("declared", c.fn.Where.String()).add("in", m.Label()).
			fix("let it compare what is in the structs, and nothing else")
		return false
	}
	return out[0].Bool()
}

// checkConfigs checks that what a function takes is declared as config.
func (p *Plan) checkConfigs(what string, fn decl.Func, m *Module, configs Lookup) bool {
	for in := range fn.Value.Type().Ins() {
		if _, ok := configs(in); !ok {
			p.problem("unknown config", fmt.Sprintf("%s takes %s, which no cell declares", what, typeName(in))).
				add("declared", fn.Where.String()).add("in", m.Label()).
				fix("declare it with cell.Config, by value")
			return false
		}
	}
	return true
}

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

// Flags are the options that switch a module, outermost first.
func (m *Module) Flags() []string {
	var flags []string
	for ; m != nil; m = m.Parent {
		for _, c := range slices.Backward(m.Conditions) {
			flags = append(slices.Clone(c.Flags), flags...)
		}
	}
	return flags
}

// WhyDisabled says which conditions keep a module off, outermost first.
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
