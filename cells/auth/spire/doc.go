// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package spire keeps one registration entry at a SPIRE server for each CiliumIdentity, so that agents get the certificates
// with which they authenticate peers. docs/wire/auth.spire.md has its rules.
//
// It decides which entries should exist, and what they look like; resources/spire makes the calls.
package spire
