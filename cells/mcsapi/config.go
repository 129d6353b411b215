// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config says what the exports of other clusters may do here.
type Config struct {
	ClusterMeshMCSAPIMaxImports       int      `flag:"clustermesh-mcs-api-max-imports" usage:"How many services of a remote cluster are imported into a namespace; 0 for any number" min:"0"`
	ClusterMeshMCSAPIMaxPorts         int      `flag:"clustermesh-mcs-api-max-ports" usage:"How many ports of a service are imported of a remote cluster; 0 for any number" min:"0"`
	ClusterMeshMCSAPISystemNamespaces bool     `flag:"clustermesh-mcs-api-system-namespaces" usage:"Import services into the namespaces of the system (kube-system, kube-public, kube-node-lease) and of the operator, too"`
	ClusterMeshMCSAPIOldestDecides    bool     `flag:"clustermesh-mcs-api-oldest-decides" usage:"Where exports differ the oldest one decides, as the original does; otherwise that of this cluster, then the oldest"`
	ClusterMeshMCSAPILabels           []string `flag:"clustermesh-mcs-api-labels" usage:"Labels of remote exports that come to ServiceImports and derived Services; a trailing * is a wildcard"`
	ClusterMeshMCSAPIAnnotations      []string `flag:"clustermesh-mcs-api-annotations" usage:"Annotations of remote exports that come to ServiceImports and derived Services; a trailing * is a wildcard"`
}

// defaults have labels that say what something is, and annotations that say which cluster serves: those that have something made are not
// among them, such as a name in a DNS zone or an address.
var defaults = Config{
	ClusterMeshMCSAPIMaxImports: 500,
	ClusterMeshMCSAPIMaxPorts:   100,
	ClusterMeshMCSAPILabels: []string{
		"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/component", "app.kubernetes.io/part-of",
	},
	ClusterMeshMCSAPIAnnotations: []string{"service.cilium.io/affinity", "service.cilium.io/global-sync-endpoint-slices"},
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	for flag, list := range map[string]allowed{"clustermesh-mcs-api-labels": c.ClusterMeshMCSAPILabels, "clustermesh-mcs-api-annotations": c.ClusterMeshMCSAPIAnnotations} {
		if i := slices.IndexFunc(list, func(entry string) bool { return strings.Contains(strings.TrimSuffix(entry, "*"), "*") }); i >= 0 {
			return cell.Invalid(flag, "%q has a * that is not at its end", list[i])
		}
	}
	return nil
}

// allowed are keys of labels or annotations; a trailing * is a wildcard.
type allowed []string

func (a allowed) has(key string) bool {
	return slices.ContainsFunc(a, func(entry string) bool {
		prefix, isPrefix := strings.CutSuffix(entry, "*")
		return entry == key || isPrefix && strings.HasPrefix(key, prefix)
	})
}

// of are the pairs that are allowed, nil for none.
func (a allowed) of(pairs map[string]string) (some map[string]string) {
	for key, value := range pairs {
		if a.has(key) {
			if some == nil {
				some = map[string]string{}
			}
			some[key] = value
		}
	}
	return some
}

// rules say which exports decide, and about what.
type rules struct {
	cluster             string // this one
	oldestDecides       bool
	labels, annotations allowed // that come of other clusters
}

func newRules(c Config, shared cluster.Config) rules {
	return rules{shared.ClusterName, c.ClusterMeshMCSAPIOldestDecides, c.ClusterMeshMCSAPILabels, c.ClusterMeshMCSAPIAnnotations}
}

// systemNamespaces are those that remote clusters do not fill: of Kubernetes, and of the operator.
func systemNamespaces(shared cluster.Config) map[string]bool {
	names := map[string]bool{"kube-system": true, "kube-public": true, "kube-node-lease": true}
	if own := shared.K8sNamespace; own != "" && own != "default" {
		names[own] = true
	}
	return names
}
