// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package health serves the state of the operator: a health API over HTTP, metrics for Prometheus, debugging, and a local
// socket. It also reports changes of the configuration.
//
// A port that is in use does not stop the operator: it is reported, and retried until it is free.
package health
