// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package aws allocates addresses of EC2 to nodes: the provider of cloudipam for the IPAM mode eni.
//
// docs/wire/ipam.aws.md has the rules. plan.go and limits.go are pure: which interface, subnet and security groups. read.go
// makes instances of what EC2 describes, change.go attaches interfaces and assigns addresses. upkeep.go deletes interfaces that
// nothing uses. All calls are in calls.go and pass the doors of session.go.
//
// No other package of the product imports the SDK of AWS.
package aws
