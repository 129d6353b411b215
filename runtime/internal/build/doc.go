// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package build runs the constructors of a resolved graph in a dig container.
//
// One flat container serves one build: the process once, a term at each entry,
// a module when it is rebuilt. There are no scopes inside: the graph has the
// provider of every parameter, so ambiguous values (private, decorated, named, of
// a group) get types of their own, made for the purpose, and values that exist
// already are bound to the constructors that take them. The container is dropped
// after the build; the values stay in [Values].
package build
