// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package child runs processes that never outlive this one, and lets this one
// not outlive its parent.
package child
