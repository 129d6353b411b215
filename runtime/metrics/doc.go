// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package metrics keeps the Prometheus collectors of a hive.
//
// Each module registers through a registerer of its own, so that the list of
// metrics can say whose each one is and a rebuilt module can register again.
// Serving them over HTTP is a cell's business.
package metrics
