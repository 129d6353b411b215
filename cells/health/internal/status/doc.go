// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package status reports the state of the operator on one screen, over a local socket and by the status command.
package status
