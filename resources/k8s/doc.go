// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package k8s is the way to the Kubernetes API: connections, and one door for
// writes.
//
// Every module has a [Client] of its own. What it sends passes the module's
// door, whatever client made the request:
//
//   - A write is let through only while the term's [leading.Fence] is open, on a
//     connection that closes with it. The fence is a deadline on two clocks,
//     not a callback: a process that was stopped and continued finds it shut.
//   - A write carries its [Cause]: which rule, set off by which objects.
//   - Modules share the client's rate fairly; the lease has a connection that
//     none of them can starve.
//
// An API server that is away is waited for, degraded, for ever. What duties
// must not do without knowing is written down as rules ([RBAC]) and compared
// once with what the role allows.
//
// What does not live here: watch streams (resources/stream) and the loops that
// decide what to write (resources/reconcile).
package k8s
