// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package build

import (
	"reflect"

	"github.com/skep-operator/skep/runtime/internal/resolve"
)

// Values are what nodes have made, and, behind them, what was there before. A
// build adds values; otherwise they are not changed, and reading is safe from
// several goroutines.
type Values struct {
	behind *Values
	of     map[*resolve.Node][]reflect.Value
}

// NewValues returns an empty table in front of another one, which may be nil.
func NewValues(behind *Values) *Values {
	return &Values{behind: behind, of: map[*resolve.Node][]reflect.Value{}}
}

// Set gives a node its value.
func (v *Values) Set(n *resolve.Node, results ...reflect.Value) { v.of[n] = results }

// Forget takes the value of a node out of the table.
func (v *Values) Forget(n *resolve.Node) { delete(v.of, n) }

// Has reports whether the node has a value.
func (v *Values) Has(n *resolve.Node) bool {
	_, ok := v.lookup(n)
	return ok
}

// Get is the result of a node. The zero Value stands for one that is missing.
func (v *Values) Get(s resolve.Source) reflect.Value {
	results, _ := v.lookup(s.Node)
	if s.Result >= len(results) {
		return reflect.Value{}
	}
	return results[s.Result]
}

func (v *Values) lookup(n *resolve.Node) ([]reflect.Value, bool) {
	for ; v != nil; v = v.behind {
		if results, ok := v.of[n]; ok {
			return results, true
		}
	}
	return nil, false
}
