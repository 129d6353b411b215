// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

// Section is a table that a module adds to the status screen, as a value of
// group "status sections". It tells how the module fares in numbers, such as
// how far its streams are behind; what is wrong is for a [Reporter].
type Section struct {
	Title   string
	Columns []string
	// Rows are read for every screen, by any goroutine, and may not block. A
	// section without rows is not shown.
	Rows func() [][]string
}
