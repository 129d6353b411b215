// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package slim holds what streams keep of Kubernetes objects, and the decoders
// that take it straight from the wire.
//
// A slim type is a struct whose fields carry the JSON names of the full type.
// [Protobuf] compiles it, once, against the Go type of k8s.io/api into a table
// that walks the protobuf bytes and skips what is not kept; [JSON] decodes
// custom resources. Field types that repeat from object to object ([String],
// [Labels], [Owner]) share their bytes.
//
// What may not live here: anything that does I/O, starts a goroutine or keeps
// an object. Objects are immutable once decoded.
package slim
