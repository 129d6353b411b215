// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package labels

import (
	"iter"
	"strings"
)

// Keys of labels added to those of the pod.
const (
	NamespaceLabelPrefix = "io.cilium.k8s.namespace.labels."
	keyNamespace         = "io.kubernetes.pod.namespace"
	keyCluster           = "io.cilium.k8s.policy.cluster"
	keyServiceAccount    = "io.cilium.k8s.policy.serviceaccount"
)

const (
	sourceK8s      = "k8s"
	forgedPrefix   = "io.cilium.k8s" // reserved for the labels added here
	reservedPrefix = "reserved."     // removed, as agents do
)

// Pod has the fields that a pod's identity depends on.
type Pod struct {
	Cluster         string
	Namespace       string
	NamespaceLabels iter.Seq2[string, string]
	ServiceAccount  string // "" adds no label
	Labels          iter.Seq2[string, string]
	// NamedPorts are those of all containers, in their order. They become labels, for agents
	// that use them; nil adds none.
	NamedPorts iter.Seq[NamedPort]
}

// Identity returns the labels of the pod's identity. keeps decides on each key, like
// Filter.Keeps.
func (p Pod) Identity(keeps func(source, key string) bool) Set {
	set := Set{}
	put := func(key, value string) {
		if keeps(sourceK8s, key) {
			set[sourceK8s+":"+key] = value
		}
	}
	own := func(key, value string) {
		if !strings.HasPrefix(key, forgedPrefix) {
			put(key, value)
		}
	}
	// Labels with the reserved prefix come first, so that labels without it
	// override them.
	for key, value := range p.Labels {
		if cut, ok := strings.CutPrefix(key, reservedPrefix); ok {
			own(cut, value)
		}
	}
	for key, value := range p.Labels {
		if !strings.HasPrefix(key, reservedPrefix) {
			own(key, value)
		}
	}
	for key, value := range p.NamespaceLabels {
		put(NamespaceLabelPrefix+key, value)
	}
	put(keyNamespace, p.Namespace)
	put(keyCluster, p.Cluster)
	if p.ServiceAccount != "" {
		put(keyServiceAccount, p.ServiceAccount)
	}
	if p.NamedPorts != nil {
		set.putNamedPorts(p.NamedPorts)
	}
	return set
}

// KeepsNamespaceLabel reports whether a label of a namespace is part of the
// identities of its pods.
func KeepsNamespaceLabel(keeps func(source, key string) bool, key string) bool {
	return keeps(sourceK8s, NamespaceLabelPrefix+key)
}
