// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package cidr reads CIDRs in objects as agents read them, and finds those in values that are none.
package cidr
