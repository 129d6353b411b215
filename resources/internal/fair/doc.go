// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package fair shares the rate limit of a client fairly between its users, and
// orders what is to be done by turns. It is independent of the requests and the server.
package fair
