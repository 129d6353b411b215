// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Defects plants defects in the product, one at a time, and runs the test that has to
// notice: tests that judge without the clock still judge. The product is changed for the
// compiler alone (go test -overlay); the tree stays as it is.
//
//	go run ./defects -root ROOT [-only REGEXP]
//
// It prints a line per defect, and fails if a test passes, if a defect cannot be compiled,
// or if the line that it changes is not in the product any more. Defects are in list.go;
// tests are not here.
package main
