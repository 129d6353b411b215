// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package command is the command line of an operator: run it, or inspect it
// without a cluster.
//
// All commands but run read the graph and the configuration as data. Modules
// add commands of their own with a [Subcommand].
package command
