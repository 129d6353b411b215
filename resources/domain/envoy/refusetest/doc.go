// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package refusetest finds what Envoy refuses of a configuration beyond the rules of its schema: the list of docs/wire/envoy.md, field by
// field (ENV-42). It judges regular expressions with RE2 itself, and knows nothing of how configurations are made.
package refusetest
