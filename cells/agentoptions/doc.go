// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package agentoptions has the options that the original declares and that no duty of an operator reads: what they do,
// agents do. docs/wire/configuration.md has the rule.
package agentoptions
