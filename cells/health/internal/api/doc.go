// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package api serves the health API over HTTP, and has the client of its metrics.
//
// docs/wire/health.md has the responses byte for byte.
package api
