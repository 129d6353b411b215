// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package port reserves loopback ports without a race: a reserved port refuses
// connections until somebody listens on it, and nobody else can be given it in
// between.
package port
