// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package api holds the kinds of cilium.io: their CustomResourceDefinitions here, their Go types in v2 and v2alpha1.
//
// The definitions in crds are generated from the types and their comments: as YAML for people, and in crds/json as the
// JSON that is embedded; nothing is parsed before it is asked for.
// A change of a type changes its definition, and needs the next SchemaRevision with it.
//
// There is one set of definitions for the agents of several releases: their fields are those of all of them, in every version
// of a kind, so that no object loses any. What they refuse depends on the release, see Edition.
//
// What does not live here: which kinds a cluster is given (a duty decides that), clients, and anything that acts.
package api

//go:generate go tool -modfile=../../cmd/tools/go.mod controller-gen object:headerFile=../../cmd/tools/boilerplate.go.txt paths=./...
//go:generate go -C ../../cmd/tools run ./crdgen ../../resources/api
