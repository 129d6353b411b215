// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package termtest runs duties in a term that is entered at once, against a real
// API server, for the tests of cells. The lease, health endpoints and all else of
// an operator are left out. Beside that it has what tests of several cells share:
// their site on the server, and the seeds of random histories.
package termtest
