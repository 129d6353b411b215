// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package taints removes the taint of nodes whose agent is ready, sets it on those whose agent is not, and sets the
// condition NetworkUnavailable of nodes with a ready agent. docs/wire/nodes.taints.md has the rules.
package taints
