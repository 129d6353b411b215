// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
)

// AddToScheme makes the kinds of all versions known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	builder := runtime.NewSchemeBuilder(v2.AddToScheme, v2alpha1.AddToScheme)
	return builder.AddToScheme(scheme)
}

// Kind is a kind of cilium.io and how it is addressed.
type Kind struct {
	// Name of the kind, such as CiliumNode.
	Name string
	// Resource is the group, the version that is stored, and the plural.
	Resource schema.GroupVersionResource
	// Older is a version that is served beside the one that is stored, and has the same fields; empty if there is none.
	Older string
}

// Served returns the versions of a kind, the newest first, which is the one that is stored.
func (k Kind) Served() []string {
	if k.Older == "" {
		return []string{k.Resource.Version}
	}
	return []string{k.Resource.Version, k.Older}
}

// CRDName is the name of the kind's CustomResourceDefinition, such as ciliumnodes.cilium.io.
func (k Kind) CRDName() string {
	return k.Resource.GroupResource().String()
}

// older is the version that v2 has taken the place of.
var older = v2alpha1.SchemeGroupVersion.Version

// kinds is ordered by name.
var kinds = []Kind{
	{"CiliumBGPAdvertisement", v2.CiliumBGPAdvertisementResource, older},
	{"CiliumBGPClusterConfig", v2.CiliumBGPClusterConfigResource, older},
	{"CiliumBGPNodeConfig", v2.CiliumBGPNodeConfigResource, older},
	{"CiliumBGPNodeConfigOverride", v2.CiliumBGPNodeConfigOverrideResource, older},
	{"CiliumBGPPeerConfig", v2.CiliumBGPPeerConfigResource, older},
	{"CiliumBGPPeeringPolicy", v2alpha1.CiliumBGPPeeringPolicyResource, ""},
	{"CiliumCIDRGroup", v2.CiliumCIDRGroupResource, older},
	{"CiliumClusterwideEnvoyConfig", v2.CiliumClusterwideEnvoyConfigResource, ""},
	{"CiliumClusterwideNetworkPolicy", v2.CiliumClusterwideNetworkPolicyResource, ""},
	{"CiliumDatapathPlugin", v2alpha1.CiliumDatapathPluginResource, ""},
	{"CiliumEgressGatewayPolicy", v2.CiliumEgressGatewayPolicyResource, ""},
	{"CiliumEndpoint", v2.CiliumEndpointResource, ""},
	{"CiliumEndpointSlice", v2alpha1.CiliumEndpointSliceResource, ""},
	{"CiliumEnvoyConfig", v2.CiliumEnvoyConfigResource, ""},
	{"CiliumExternalWorkload", v2.CiliumExternalWorkloadResource, ""},
	{"CiliumGatewayClassConfig", v2alpha1.CiliumGatewayClassConfigResource, ""},
	{"CiliumIdentity", v2.CiliumIdentityResource, ""},
	{"CiliumL2AnnouncementPolicy", v2alpha1.CiliumL2AnnouncementPolicyResource, ""},
	{"CiliumLoadBalancerIPPool", v2.CiliumLoadBalancerIPPoolResource, older},
	{"CiliumLocalRedirectPolicy", v2.CiliumLocalRedirectPolicyResource, ""},
	{"CiliumNetworkPolicy", v2.CiliumNetworkPolicyResource, ""},
	{"CiliumNode", v2.CiliumNodeResource, ""},
	{"CiliumNodeConfig", v2.CiliumNodeConfigResource, older},
	{"CiliumPodIPPool", v2alpha1.CiliumPodIPPoolResource, ""},
}

// Kinds returns all kinds, ordered by name. The slice is the caller's.
func Kinds() []Kind {
	return slices.Clone(kinds)
}

// KindNamed returns the kind of a name, of Kinds or MulticlusterKinds, and whether there is one.
func KindNamed(name string) (Kind, bool) {
	for _, k := range slices.Concat(kinds, multiclusterKinds) {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}
