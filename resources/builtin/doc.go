// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package builtin knows the resources that every API server has, and has typed clients for
// those that operators write by type.
//
// It is in place of client-go's clientset and scheme, which link all types of all versions
// of all API groups into each program: a sixth of its size. What belongs here is what is true
// of built-in resources in general; what one of them is for does not.
package builtin
