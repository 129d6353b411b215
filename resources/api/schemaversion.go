// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import "fmt"

// SchemaVersionLabel is the label of a CustomResourceDefinition that holds the version of its schema.
const SchemaVersionLabel = "io.cilium.k8s.crd.schema.version"

// OldestLabel is the version of the schemas that cilium-operator 1.17 registers.
const OldestLabel = "1.30.8"

// SchemaRevision counts the changes of the schemas in this package. A change needs the next one, so that it reaches clusters;
// a test holds the hash of the schemas beside it and fails when one changes without the other.
const SchemaRevision = 1

// SchemaVersion is the version of the schemas of an edition, one for all of them, such as 1.33.9-alpha.1.
//
// Operators read it to decide who writes: each replaces a definition whose version is lower than its own,
// and leaves an equal or a higher one alone. That goes for us and for every release of cilium-operator,
// so the versions of both are one order, and a value of ours says where our schemas stand in it.
//
// They stand directly below those of the release that runs. We replace what older releases have registered, which knows
// fewer fields. cilium-operator of the same release or a later one takes its own back, and we leave those alone.
// Version comparison of all operators honours "alpha" (other suffixes would be dropped, and the value taken for the release's).
func (e Edition) SchemaVersion() string {
	label := e.Label
	if label == "" {
		label = OldestLabel
	}
	return fmt.Sprintf("%s-alpha.%d", label, SchemaRevision)
}
