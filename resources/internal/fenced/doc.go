// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package fenced has the connections that writes go over: each write asks the
// fence of the term, and no connection outlives it. It knows neither what fences
// nor what is written; the clients in resources/k8s and resources/kvstore do.
package fenced
