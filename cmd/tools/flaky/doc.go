// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Command flaky tells which tests passed only when they ran again, from the events that the runs of "make test" keep:
// a file per run, which ends in .json. Of each such test it prints a line, and keeps the output of its first failure:
//
//	FLAKY 1: example.org/shop.TestOrder (1 of 2 runs failed; first output in bin/flaky/example.org_shop.TestOrder.log)
//
// More than -max of them are an error.
//
//	go -C cmd/tools run ./flaky -max 3 FOLDER
//	go -C cmd/tools run ./flaky -check FILE…
//
// With -check it is silent about them, and checks a run that gotestsum found good in the end. gotestsum runs again what
// failed, and believes a success. But a test that never ran has not passed, and neither has a package that failed
// though its tests did not, as when goroutines are left behind: run again, without a test, it succeeds. These are errors.
//
// The module's tests drive the Makefile's own way to run tests, with packages in testdata that fail in each way.
package main
