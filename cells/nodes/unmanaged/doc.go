// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package unmanaged restarts pods that started before the agent of their node, one at a time: those of DNS by default.
// docs/wire/nodes.unmanaged.md has the rules.
package unmanaged
