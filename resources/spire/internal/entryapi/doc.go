// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package entryapi calls the service spire.api.server.entry.v1.Entry of SPIRE servers.
//
// The messages are encoded field by field. SPIRE's module with generated code is not used, and no code is generated from
// its definitions: both would register the names of its messages in the process, where those of an embedder's SDK are.
// Fields that are not used are skipped, so that newer servers are served.
package entryapi
