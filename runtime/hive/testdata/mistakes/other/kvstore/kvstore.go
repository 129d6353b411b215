// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package kvstore has types of the same names as another package.
package kvstore

// Client is not the Client that is meant.
type Client struct{}

// Absent is not the Absent that is meant, and has the same package name.
type Absent struct{}

// New is a plain constructor.
func New() *Absent { return &Absent{} }
