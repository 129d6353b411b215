// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package policy checks the rules of network policies as agents do. It is pure.
package policy
