// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package identity makes the CiliumIdentities that pods need, one for each set of
// labels, and tells other duties which pod bears which.
//
// docs/wire/identities.md has the rules. table.go and objects.go know who there
// is, plan.go decides, numbers.go gives out numbers; they know no clock, no
// network and no goroutines. loop.go watches, write.go writes, tend.go sees to
// what nobody sets off, and assignments.go answers others. What labels make an
// identity is in resources/domain/labels.
package identity
