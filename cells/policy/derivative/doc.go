// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package derivative turns groups of a cloud in network policies into CIDRs that agents understand.
//
// docs/wire/policy.derivative.md has the rules. A policy with toGroups or fromGroups has a derived policy, in which lists of
// CIDRs are in their place. plan.go derives it from the policy as the API server has it, so that fields of newer agents stay;
// selectors.go rewrites its selectors, addresses.go the results of look-ups; lookups.go asks the providers of groups, each
// once in a refresh; status.go has the entry of the policy's status, and triggers.go decides which changes matter.
package derivative
