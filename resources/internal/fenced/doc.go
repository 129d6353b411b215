// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package fenced provides the connections for writes: each write checks the fence of
// the term, and no connection outlives it. It is used by the clients in resources/k8s
// and resources/kvstore.
package fenced
