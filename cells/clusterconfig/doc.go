// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package clusterconfig publishes what other clusters of the mesh have to know of
// this one before they use it: its number and what it is capable of.
//
// docs/wire/heartbeat-and-locks.md has the rules (C). Reading the configuration of
// other clusters is no business of this package.
package clusterconfig
