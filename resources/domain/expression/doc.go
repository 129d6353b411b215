// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package expression judges regular expressions that others write, and never compiles one: a text of 20 kB can mean a program
// of hundreds of megabytes. Each step bounds the next one: the text, what a parse may cost, and the size of the program by
// the parsed tree.
package expression
