// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package httpserver serves HTTP at addresses that may be taken by another process, with
// limits on what clients may hold. A [Server] is a lifecycle hook, and reports to health.
//
// What does not live here: handlers.
package httpserver
