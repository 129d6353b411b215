// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package benchtest runs benchmarks once as a test, so that they do not rot: go test keeps
// the result of a test, and links its package once for tests and benchmarks. What benchmarks
// measure is not judged here.
package benchtest
