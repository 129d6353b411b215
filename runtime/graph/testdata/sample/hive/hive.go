// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package hive has a type that reads like one of the runtime's package hive.
package hive

// Config is told from the runtime's by its import path only.
type Config struct{}
