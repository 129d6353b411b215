// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every kind of Cilium.
const GroupName = "cilium.io"

// SchemeGroupVersion is the group and version of the kinds in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v2"}

// The resources of this version, by kind.
var (
	CiliumBGPAdvertisementResource         = SchemeGroupVersion.WithResource("ciliumbgpadvertisements")
	CiliumBGPClusterConfigResource         = SchemeGroupVersion.WithResource("ciliumbgpclusterconfigs")
	CiliumBGPNodeConfigResource            = SchemeGroupVersion.WithResource("ciliumbgpnodeconfigs")
	CiliumBGPNodeConfigOverrideResource    = SchemeGroupVersion.WithResource("ciliumbgpnodeconfigoverrides")
	CiliumBGPPeerConfigResource            = SchemeGroupVersion.WithResource("ciliumbgppeerconfigs")
	CiliumCIDRGroupResource                = SchemeGroupVersion.WithResource("ciliumcidrgroups")
	CiliumClusterwideEnvoyConfigResource   = SchemeGroupVersion.WithResource("ciliumclusterwideenvoyconfigs")
	CiliumClusterwideNetworkPolicyResource = SchemeGroupVersion.WithResource("ciliumclusterwidenetworkpolicies")
	CiliumEgressGatewayPolicyResource      = SchemeGroupVersion.WithResource("ciliumegressgatewaypolicies")
	CiliumEndpointResource                 = SchemeGroupVersion.WithResource("ciliumendpoints")
	CiliumEnvoyConfigResource              = SchemeGroupVersion.WithResource("ciliumenvoyconfigs")
	CiliumExternalWorkloadResource         = SchemeGroupVersion.WithResource("ciliumexternalworkloads")
	CiliumIdentityResource                 = SchemeGroupVersion.WithResource("ciliumidentities")
	CiliumLoadBalancerIPPoolResource       = SchemeGroupVersion.WithResource("ciliumloadbalancerippools")
	CiliumLocalRedirectPolicyResource      = SchemeGroupVersion.WithResource("ciliumlocalredirectpolicies")
	CiliumNetworkPolicyResource            = SchemeGroupVersion.WithResource("ciliumnetworkpolicies")
	CiliumNodeResource                     = SchemeGroupVersion.WithResource("ciliumnodes")
	CiliumNodeConfigResource               = SchemeGroupVersion.WithResource("ciliumnodeconfigs")
)

var (
	// SchemeBuilder collects what AddToScheme registers.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)
	// AddToScheme makes the kinds of this version known to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Kind qualifies the name of a kind with the group.
func Kind(kind string) schema.GroupKind {
	return SchemeGroupVersion.WithKind(kind).GroupKind()
}

// Resource qualifies the name of a resource with the group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&CiliumBGPAdvertisement{}, &CiliumBGPAdvertisementList{},
		&CiliumBGPClusterConfig{}, &CiliumBGPClusterConfigList{},
		&CiliumBGPNodeConfig{}, &CiliumBGPNodeConfigList{},
		&CiliumBGPNodeConfigOverride{}, &CiliumBGPNodeConfigOverrideList{},
		&CiliumBGPPeerConfig{}, &CiliumBGPPeerConfigList{},
		&CiliumCIDRGroup{}, &CiliumCIDRGroupList{},
		&CiliumClusterwideEnvoyConfig{}, &CiliumClusterwideEnvoyConfigList{},
		&CiliumClusterwideNetworkPolicy{}, &CiliumClusterwideNetworkPolicyList{},
		&CiliumEgressGatewayPolicy{}, &CiliumEgressGatewayPolicyList{},
		&CiliumEndpoint{}, &CiliumEndpointList{},
		&CiliumEnvoyConfig{}, &CiliumEnvoyConfigList{},
		&CiliumExternalWorkload{}, &CiliumExternalWorkloadList{},
		&CiliumIdentity{}, &CiliumIdentityList{},
		&CiliumLoadBalancerIPPool{}, &CiliumLoadBalancerIPPoolList{},
		&CiliumLocalRedirectPolicy{}, &CiliumLocalRedirectPolicyList{},
		&CiliumNetworkPolicy{}, &CiliumNetworkPolicyList{},
		&CiliumNode{}, &CiliumNodeList{},
		&CiliumNodeConfig{}, &CiliumNodeConfigList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
