// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package release is the one place that knows how the releases of Cilium differ. It has a table of questions, each with
// its answer for each release, and finds out which release the cluster runs.
//
// A duty asks a question, such as [BGPPeeringPolicies], and never compares releases: those have no order outside of
// this package. Who adds a release adds a column; the tests name the questions without an answer.
package release
