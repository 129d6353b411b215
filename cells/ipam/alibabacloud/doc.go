// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package alibabacloud allocates addresses of Alibaba Cloud's VPCs to nodes: the provider of cloudipam for the IPAM mode
// alibabacloud.
//
// docs/wire/ipam.alibabacloud.md has the rules. plan.go is pure: which interface, vSwitch and security groups. read.go makes
// instances of what ECS describes, change.go attaches interfaces and assigns addresses, upkeep.go deletes interfaces that were
// not attached. All calls are in calls.go, with the answers of wire.go; they pass the door in session.go.
//
// No other package of the product imports the SDK of Alibaba Cloud.
package alibabacloud
