// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"strings"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/cluster"
)

// known are the kinds that are registered where they are needed.
func known() []api.Kind { return append(api.Kinds(), api.MulticlusterKinds()...) }

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
