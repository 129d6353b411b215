// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package kvstore has types that mistaken cells ask for.
package kvstore

// Client is provided in one form or another.
type Client struct{}

// Get makes it a Getter.
func (*Client) Get(string) string { return "" }

// Getter is what some modules depend on instead.
type Getter interface{ Get(string) string }

// Absent has no provider.
type Absent struct{}

// New is a plain constructor.
func New() *Client { return &Client{} }

// NewValue provides the value instead of the pointer.
func NewValue() Client { return Client{} }

// NewGetter provides the interface instead of the implementation.
func NewGetter() Getter { return &Client{} }
