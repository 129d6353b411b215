// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/cluster"
)

// edition is that of the oldest release, whose definitions accept what any release does.
var edition api.Edition

// known are the kinds that are registered where they are needed.
func known() []api.Kind { return append(ownKinds(), api.MulticlusterKinds()...) }

// ownKinds are those of cilium.io, but those that only agents from 1.18 on have.
func ownKinds() []api.Kind {
	return slices.DeleteFunc(api.Kinds(), func(k api.Kind) bool {
		return k.Name == "CiliumDatapathPlugin" || k.Name == "CiliumGatewayClassConfig"
	})
}

// wanted are the kinds that a cluster with this configuration needs.
func wanted(c Config, shared cluster.Config) []api.Kind {
	var kinds []api.Kind
	for _, k := range known() {
		if isWanted(k.Name, c, shared) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func isWanted(kind string, c Config, shared cluster.Config) bool {
	switch kind {
	case "CiliumEndpoint":
		return shared.EndpointCRD()
	case "CiliumEndpointSlice":
		return shared.EnableCiliumEndpointSlice && (shared.EndpointCRD() || shared.SlimEndpointSlices())
	case "CiliumLocalRedirectPolicy":
		return c.EnableLocalRedirectPolicy
	case "CiliumEgressGatewayPolicy":
		return c.EnableIPv4EgressGateway
	case "CiliumEnvoyConfig", "CiliumClusterwideEnvoyConfig":
		return shared.EnableEnvoyConfig
	case "ServiceExport", "ServiceImport":
		return shared.ClusterMeshEnableMCSAPI && c.ClusterMeshMCSAPIInstallCRDs
	}
	if strings.HasPrefix(kind, "CiliumBGP") {
		return shared.EnableBGPControlPlane
	}
	return true
}
