// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"fmt"
	"strings"
)

// notBuilt is a warning that names the duties that are asked for and that no module does, or nothing.
func (h *Hive) notBuilt() string {
	var duties []string
	for _, n := range h.graph.NotBuilt() {
		if n.Asked.Holds {
			duties = append(duties, fmt.Sprintf("%s (%s)", n.ID, strings.Join(n.Asked.Flags, ", ")))
		}
	}
	if len(duties) == 0 {
		return ""
	}
	return "not built yet, and asked for: " + strings.Join(duties, "; ")
}
