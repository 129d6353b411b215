// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package derivative turns groups of a cloud in network policies into CIDRs that agents understand.
//
// docs/wire/policy.derivative.md has the rules. A policy with toGroups or fromGroups has a derived policy, in which lists of
// CIDRs are in their place; agents of later releases take CiliumCIDRGroups in place of it, one for each group. forms.go decides
// which of the two there are.
//
// plan.go derives a policy from the one as the API server has it, so that fields of newer agents stay; selectors.go rewrites its
// selectors, addresses.go the results of look-ups; lookups.go asks the providers of groups, each once in a refresh; status.go has
// the entry of the policy's status, and triggers.go decides which changes matter. users.go knows which policies refer to a group,
// cidrgroup.go what its CiliumCIDRGroup is, and external.go writes it.
package derivative
