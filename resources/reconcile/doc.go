// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package reconcile is the mechanism by which duties bring objects to their desired state: changes of streams enqueue
// keys, one worker at a time reconciles a key, and only differences are written.
//
// The mechanism sets the cause of every write, retries with back-off and reports failures. The decision is the duty's;
// garbage collection and mirroring have mechanisms of their own.
package reconcile
