// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package spiretest simulates SPIRE in tests: a server with the Entry service on TCP, by mutual TLS, and an agent with the
// Workload API on a unix socket.
//
// Its messages come from descriptors, so that it shares no code with the client that it tests. What goes wrong is set by
// methods: entries and whole calls that are refused, calls that hang or cost what they cost a database in one file, a lost database, connections that
// the server ends, certificates and authorities that rotate or end, an agent that does not know the operator, a server on another address.
package spiretest
