// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package crds registers the CRDs of cilium.io and updates older ones, before other modules of a term start.
//
// docs/wire/crds.md has the rules. Newer CRDs are kept, as are other labels, and nothing is deleted. A failure is reported
// and retried; the other CRDs and duties do not wait for it.
package crds
