// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package globalnamespace

import (
	"strings"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Annotation says whether a Namespace is global.
const Annotation = "clustermesh.cilium.io/global"

// Scope is what is known of a Namespace.
type Scope int

const (
	// Unknown: the Namespace has not been seen yet, or cannot be decoded. What is exported of it stays as it is.
	Unknown Scope = iota
	// Local: nothing in the Namespace is exported.
	Local
	// Global: what is in the Namespace is exported as if there were no scopes.
	Global
)

// Of returns the scope of the Namespace with a name. namespaces is complete.
func Of(namespaces *stream.Store[slim.Namespace], name string, shared cluster.Config) Scope {
	key := slim.Key{Name: name}
	n, exists := namespaces.Get(key)
	if !exists || namespaces.Hides(key) {
		return Unknown
	}
	if isGlobal, _ := decide(n.Annotations.Labels, shared.ClusterMeshDefaultGlobalNamespace); isGlobal {
		return Global
	}
	return Local
}

// decide returns whether a Namespace with the given annotations is global. The default counts for one without the annotation. One whose
// annotation is neither true nor false is not global, as for agents, and invalid.
func decide(annotations slim.Labels, byDefault bool) (isGlobal, valid bool) {
	text, set := annotations.Lookup(Annotation)
	if !set {
		return byDefault, true
	}
	isGlobal = strings.EqualFold(text, "true")
	return isGlobal, isGlobal || strings.EqualFold(text, "false")
}
