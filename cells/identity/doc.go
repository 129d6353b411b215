// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package identity creates the CiliumIdentities that pods need, one per label set, and provides the identity of each pod
// to other duties.
//
// docs/wire/identity.md has the rules. table.go, objects.go and edited_labels.go hold the state, plan.go decides,
// numbers.go allocates numeric identities: pure, single-threaded, no I/O. controller.go watches, write.go and restore.go
// write, periodic.go runs the checks that no event triggers, and assignments.go answers other duties. Which labels are
// part of an identity is in resources/domain/labels.
//
// States of a label set, and what moves it:
//
//	no number       -> exists          an object with the labels is in the cache: the oldest is chosen (updateChoice)
//	no number       -> fresh           pods have the labels, a free number is allocated (allocateNumber)
//	no number       -> awaitingNumber  no number is free; back when one leaves its quarantine (expireQuarantine)
//	fresh           -> in flight       the object is being created (nextAction)
//	in flight       -> exists          created, or a response shows the same labels (recordCreate)
//	in flight       -> no number       the object exists with other labels: the number is released
//	in flight       -> uncertain       the request failed and may yet take effect: the next one has the same number
//	exists          -> in flight       the labels of the object were edited: they are restored (restore.go)
//	exists          -> no object       the object was deleted: recreated while endpoints have the number, else no number
//	any, without pods, objects and endpoints with its number: dropped
package identity
