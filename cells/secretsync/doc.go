// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package secretsync copies the Secrets that Ingresses, Gateways and network policies refer to, and the ConfigMaps of
// BackendTLSPolicies, to the namespaces that agents read.
//
// docs/wire/secretsync.md has the rules. Duties report references by resources/secretref; policies.go, gateways.go and
// authorities.go do for objects that no duty here serves. references.go has what refers to what, plan.go is what a copy has,
// controller.go decides which there are to be, write.go writes them.
package secretsync
