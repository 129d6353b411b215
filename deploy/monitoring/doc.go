// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package monitoring has no code: here are alerts on the operator, and the tests that hold them to the metrics that it
// has, to situations in which they must fire or be silent, and to docs/alerts.md.
package monitoring
