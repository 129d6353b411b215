// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package ec2test is a cloud with the query API of EC2 and the instance metadata service (IMDSv2): HTTP handlers that any
// client of AWS can be pointed at, with AWS_ENDPOINT_URL_EC2 and AWS_EC2_METADATA_SERVICE_ENDPOINT. It has the quotas and
// error codes of EC2, pages, route tables, network cards, elastic addresses, token buckets by operation, eventual consistency, and
// faults. cmd/cloudsim serves it.
//
// It knows the operations that IPAM uses, and no SDK.
package ec2test
