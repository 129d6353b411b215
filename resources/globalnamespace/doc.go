// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package globalnamespace decides which Namespaces are global: what is in others is not exported to the clusters of the mesh.
//
// docs/wire/globalnamespace.md has the rules. decide.go is the decision, which duties make with their own view of Namespaces;
// report.go reports Namespaces whose annotation is invalid, once for all duties.
package globalnamespace
