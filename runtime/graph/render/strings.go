// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package render

import (
	"slices"
)

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func without(list []string, those ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(those, s) })
}
