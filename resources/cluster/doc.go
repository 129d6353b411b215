// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package cluster has the options that many duties share: the cluster's name and ID,
// its address families, the operator's namespace, and the modes of identity management
// and IPAM. Each flag has one owner; duties depend on the config struct. An option of a
// single duty belongs to that duty.
package cluster
