// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package proxy serves connections as a configuration for Envoy says: filter chains by server name, termination and passing
// through of TLS, route tables. It is written from Envoy's documentation, and knows the part of Envoy's API that the operator
// writes: a field that it does not know is an error of New, so that no result of a test rests on something that was ignored.
package proxy
