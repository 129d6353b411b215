// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package features reports to Prometheus which features of the original this operator serves, by the modules that are
// enabled. docs/wire/health.md has the rules.
package features
