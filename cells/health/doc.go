// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package health tells how the operator fares: to probes and programs over
// HTTP, to Prometheus, to debuggers, and to people through a local socket.
//
// docs/wire/operator-shell.md has the answers of the HTTP API byte for byte.
// A port that is taken does not stop the operator: it is reported, and tried
// again until it is free.
package health
