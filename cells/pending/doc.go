// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package pending accepts the options of duties that are not implemented yet, so that
// a configuration of the original is valid unchanged, and reports the duties that a
// configuration enables. The lists shrink with each duty.
package pending
