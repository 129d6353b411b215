// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

// Section is a table that a module adds to the status screen, as a value of
// group "status sections". It has figures of the module, such as the lag of
// its streams; problems are for a [Reporter].
type Section struct {
	Title   string
	Columns []string
	// Rows are read for every screen, by any goroutine, and may not block. A
	// section without rows is not shown.
	Rows func() [][]string
}
