// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// SchemeGroupVersion is the group and version of the kinds in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: v2.GroupName, Version: "v2alpha1"}

// The resources that have no newer version, by kind. The others are in v2, in which they are read and written.
var (
	CiliumBGPPeeringPolicyResource     = SchemeGroupVersion.WithResource("ciliumbgppeeringpolicies")
	CiliumDatapathPluginResource       = SchemeGroupVersion.WithResource("ciliumdatapathplugins")
	CiliumEndpointSliceResource        = SchemeGroupVersion.WithResource("ciliumendpointslices")
	CiliumGatewayClassConfigResource   = SchemeGroupVersion.WithResource("ciliumgatewayclassconfigs")
	CiliumL2AnnouncementPolicyResource = SchemeGroupVersion.WithResource("ciliuml2announcementpolicies")
	CiliumPodIPPoolResource            = SchemeGroupVersion.WithResource("ciliumpodippools")
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
		&CiliumBGPPeeringPolicy{}, &CiliumBGPPeeringPolicyList{},
		&CiliumCIDRGroup{}, &CiliumCIDRGroupList{},
		&CiliumDatapathPlugin{}, &CiliumDatapathPluginList{},
		&CiliumEndpointSlice{}, &CiliumEndpointSliceList{},
		&CiliumGatewayClassConfig{}, &CiliumGatewayClassConfigList{},
		&CiliumL2AnnouncementPolicy{}, &CiliumL2AnnouncementPolicyList{},
		&CiliumLoadBalancerIPPool{}, &CiliumLoadBalancerIPPoolList{},
		&CiliumNodeConfig{}, &CiliumNodeConfigList{},
		&CiliumPodIPPool{}, &CiliumPodIPPoolList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
