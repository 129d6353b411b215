// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package usage reads what the process has used: CPU time, memory, allocations.
//
// What may not live here: anything that knows what is measured.
package usage
