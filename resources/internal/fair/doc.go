// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package fair shares what a client may ask of a server between those that ask.
// It knows neither the requests nor the server.
package fair
