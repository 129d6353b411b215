// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package command holds the commands of devcluster: what they are asked, and
// which of the other packages does it.
package command
