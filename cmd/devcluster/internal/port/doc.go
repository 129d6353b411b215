// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package port reserves loopback ports without a race: a reserved port refuses
// connections until its owner listens on it, and is given to no other process.
package port
