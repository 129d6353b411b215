// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package termtest runs duties in a term that is entered at once, against a real
// API server, for the tests of cells. The lease, health endpoints and all else of
// an operator are left out.
package termtest
