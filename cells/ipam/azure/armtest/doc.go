// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package armtest is Azure for tests: Resource Manager, the token service and instance metadata behind a real HTTP server, as
// far as IPAM calls them. Requests are decoded and answered by the official fake servers of the SDK, so that what they do not
// understand fails; what these leave to tests (pages, long-running operations, entity tags, faults) is done here as Azure
// documents it. It is a package for tests and for cmd/cloudsim, and lives beside its cell, since only that may import the SDK.
//
// cloud.go is the state, public.go that of public addresses, fakes.go what the fake servers call, server.go the HTTP server.
package armtest
