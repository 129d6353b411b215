// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package spire keeps one registration entry at a SPIRE server for each CiliumIdentity, so that agents get the certificates
// with which they authenticate peers. docs/wire/auth.spire.md has its rules.
//
// plan.go is pure. workload.go gets the operator's own certificate from the SPIRE agent, connection.go connects to the
// server, calls.go makes the calls, all of which pass resources/outside, and controller.go compares and applies.
package spire
