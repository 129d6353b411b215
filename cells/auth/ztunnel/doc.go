// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package ztunnel keeps one registration entry at a SPIRE server for each ServiceAccount of an enrolled namespace, so that
// ztunnel gets the certificates with which it encrypts. docs/wire/auth.ztunnel.md has its rules.
//
// It decides which entries should exist, and what they look like; resources/spire makes the calls.
package ztunnel
