// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package cluster measures whole operators, as processes, on a real control
// plane with a load. What it knows of them is visible from outside:
// objects, the audit log, /proc, and the status socket.
package cluster
