// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package pki is a certificate authority for a cluster that lives on loopback
// for a while: no revocation, no rotation.
package pki
