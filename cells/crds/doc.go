// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package crds registers the kinds of cilium.io and brings older definitions up
// to date, before anything else of a term starts.
//
// docs/wire/crds.md has the rules. Newer definitions are left alone, foreign
// labels are kept, and nothing is ever deleted. A kind that cannot be registered
// is reported and tried again; the others, and the other duties, go on.
package crds
