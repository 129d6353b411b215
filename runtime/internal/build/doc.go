// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package build runs the constructors of a planned graph in a dig container.
//
// One flat container serves one build: the process once, a term at each entry,
// a module when it is rebuilt. There are no scopes inside: the plan has already
// found who provides what to whom, so values that need telling apart (private,
// decorated, named, of a group) get types of their own, made for the purpose,
// and values that exist already are bound to the constructors that take them.
// The container is dropped when the build is done; the values stay in [Values].
package build
