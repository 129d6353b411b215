// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package plan

import (
	"fmt"
	"reflect"
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
}

func (p *Plan) evaluate(m *Module, c *Condition, configs Lookup) (holds bool) {
	t := c.fn.Value.Type()
	if t.NumOut() != 1 || t.Out(0).Kind() != reflect.Bool {
		p.problem("unusable function", fmt.Sprintf("the condition %q does not return a bool", c.Name)).
			add("declared", c.fn.Where.String()).add("in", m.Label())
		return false
	}
	out, err := CallWithConfigs(c.fn, configs)
	if err != nil {
		p.problem("unusable function", fmt.Sprintf("the condition %q %v", c.Name, err)).
			add("declared", c.fn.Where.String()).add("in", m.Label())
		return false
	}
	return out[0].Bool()
}

// CallWithConfigs calls a function of config structs. A panic becomes an error.
func CallWithConfigs(fn decl.Func, configs Lookup) (out []reflect.Value, err error) {
	t := fn.Value.Type()
	args := make([]reflect.Value, t.NumIn())
	for i := range args {
		v, ok := configs(t.In(i))
		if !ok {
			return nil, fmt.Errorf("takes %s, which no cell declares as config", typeName(t.In(i)))
		}
		args[i] = v
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panicked: %v", v)
		}
	}()
	return fn.Value.Call(args), nil
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
