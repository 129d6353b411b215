// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"strings"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/envoy"
)

// known are the kinds that are registered where they are needed.
func known() []api.Kind { return append(api.Kinds(), api.MulticlusterKinds()...) }

// ofSomeReleases are the kinds that not every release has. The role of a chart allows to update those of its release.
func ofSomeReleases(kind string) bool {
	switch kind {
	case "CiliumExternalWorkload", "CiliumBGPPeeringPolicy", "CiliumGatewayClassConfig", "CiliumDatapathPlugin":
		return true
	}
	return false
}

// wanted are the kinds that a cluster with this configuration needs.
func wanted(c Config, shared cluster.Config, gateways envoy.Config) []api.Kind {
	var kinds []api.Kind
	for _, k := range known() {
		if isWanted(k.Name, c, shared, gateways) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func isWanted(kind string, c Config, shared cluster.Config, gateways envoy.Config) bool {
	switch kind {
	case "CiliumEndpoint":
		return shared.EndpointCRD()
	case "CiliumEndpointSlice":
		return shared.EnableCiliumEndpointSlice
	case "CiliumNetworkPolicy":
		return shared.EnableCiliumNetworkPolicy
	case "CiliumClusterwideNetworkPolicy":
		return shared.EnableCiliumClusterwideNetworkPolicy
	case "CiliumCIDRGroup":
		return shared.EnableCiliumNetworkPolicy || shared.EnableCiliumClusterwideNetworkPolicy
	case "CiliumLocalRedirectPolicy":
		return c.EnableLocalRedirectPolicy
	case "CiliumEgressGatewayPolicy":
		return c.EnableEgressGateway || c.EnableIPv4EgressGateway
	case "CiliumEnvoyConfig", "CiliumClusterwideEnvoyConfig":
		return shared.EnableEnvoyConfig
	case "CiliumGatewayClassConfig":
		return gateways.EnableGatewayAPI && release.GatewayClassConfigs.In(shared.Release)
	case "CiliumDatapathPlugin":
		return c.EnableDatapathPlugins && release.DatapathPlugins.In(shared.Release)
	case "CiliumExternalWorkload":
		return release.ExternalWorkloads.In(shared.Release)
	case "CiliumBGPPeeringPolicy":
		return shared.EnableBGPControlPlane && release.BGPPeeringPolicies.In(shared.Release)
	case "ServiceExport", "ServiceImport":
		return shared.ClusterMeshEnableMCSAPI && c.ClusterMeshMCSAPIInstallCRDs
	}
	if strings.HasPrefix(kind, "CiliumBGP") {
		return shared.EnableBGPControlPlane
	}
	return true
}
