// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package mcsapi serves the multi-cluster services API (KEP-1645) between the clusters of a mesh: it copies
// ServiceExports to etcd, makes a ServiceImport of what all clusters export, and a derived, global Service of each
// ServiceImport or ServiceExport.
//
// docs/wire/mcsapi.md has the rules. merge.go resolves conflicts between exports: metadata.go those of labels and annotations,
// traffic.go those of IP families and of where traffic goes. plan.go decides about ServiceImports, derive.go about derived
// Services, slices.go and selector.go about the endpoints that they have of this cluster, status.go about conditions; stream.go
// is what is kept of objects, and controller.go and write.go bring them to their desired state. export.go is the value of an
// export, which resources/mirror writes to etcd.
package mcsapi
