// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package ecstest is a region of Alibaba Cloud for tests: the RPC APIs of ECS and VPC as far as IPAM calls them, and the metadata
// service of instances, behind a real HTTP server. Requests are signed as the SDK signs them (ACS3-HMAC-SHA256), of which the key
// and the nonce are checked. It has the error codes, quotas and pages that Alibaba Cloud documents, attachments that take a while
// or never end, descriptions that are out of date, throttling and faults.
//
// It knows no SDK. cloud.go is the state, api.go the HTTP server, describe.go what reads and change.go what changes.
package ecstest
