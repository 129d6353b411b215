// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

// SchemaVersionLabel is the label of a CustomResourceDefinition that holds the version of its schema.
const SchemaVersionLabel = "io.cilium.k8s.crd.schema.version"

// SchemaVersion is the version of the schemas in this package, one for all of them.
//
// Operators read it to decide who writes: each replaces a definition whose version is lower than its own,
// and leaves an equal or a higher one alone. That goes for us and for every release of cilium-operator,
// so the versions of both are one order, and a value of ours says where our schemas stand in it.
//
// They stand at 1.30.1. Descriptions aside, they are those that cilium-operator registers under that version,
// path by path (a test compares them), and equal schemas bear equal versions: moving a cluster
// from it to us or back changes no definition, older definitions are upgraded by either,
// and those of later releases, which know more fields, are theirs to write and ours to leave.
//
// A change of our schemas needs a new version that is higher, so that it reaches clusters,
// and lower than the next one of cilium-operator, so that we never hold back its fields: 1.30.2-alpha.1, then -alpha.2.
// Version comparison of all operators honours "alpha" (other suffixes would be dropped, and the value taken for 1.30.2).
// A test holds the hash of the schemas beside the version and fails when one changes without the other.
const SchemaVersion = "1.30.1"
