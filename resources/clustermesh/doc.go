// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package clustermesh reads what other clusters publish in their etcds, for the duties of the leader.
//
// The mounted directory of --clustermesh-config has an etcd client configuration for each remote cluster; files that come,
// change and go while the operator runs take effect. [Mesh] has a connection to each cluster, and what [Objects] they
// publish. A cluster that is unreachable affects nothing of the others, and what is known of it stays.
//
// docs/wire/clustermesh.md has the rules; tests cite their ids.
package clustermesh
