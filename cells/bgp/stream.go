// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var (
	clusterConfigs = stream.Custom[clusterConfig](v2.CiliumBGPClusterConfigResource).OfKind("CiliumBGPClusterConfig")
	overrides      = stream.Custom[override](v2.CiliumBGPNodeConfigOverrideResource).OfKind("CiliumBGPNodeConfigOverride")
	nodeConfigs    = stream.Custom[nodeConfig](v2.CiliumBGPNodeConfigResource).OfKind("CiliumBGPNodeConfig")
	peerConfigs    = stream.Custom[peerConfig](v2.CiliumBGPPeerConfigResource).OfKind("CiliumBGPPeerConfig")
	nodes          = stream.Custom[node](v2.CiliumNodeResource).OfKind("CiliumNode")

	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

func statusOf(of schema.GroupVersionResource) schema.GroupResource {
	return schema.GroupResource{Group: of.Group, Resource: of.Resource + "/status"}
}

// node is what is kept of a CiliumNode.
type node struct {
	nodeMeta `json:"metadata"`
}

type nodeMeta struct {
	slim.Meta
	Labels slim.Labels `json:"labels"`
}

// clusterConfig is what is kept of a CiliumBGPClusterConfig.
type clusterConfig struct {
	configMeta     `json:"metadata"`
	slim.Undecoded `json:"-"`
	APIVersion     slim.String       `json:"apiVersion"`
	Spec           clusterConfigSpec `json:"spec"`
	Status         conditionsStatus  `json:"status"`
}

type configMeta struct {
	slim.Meta
	Generation        int64     `json:"generation"`
	CreationTimestamp slim.Time `json:"creationTimestamp"`
	DeletionTimestamp slim.Time `json:"deletionTimestamp"`
}

type clusterConfigSpec struct {
	NodeSelector *v2.LabelSelector `json:"nodeSelector"`
	BGPInstances []instance        `json:"bgpInstances"`
}

// override is what is kept of a CiliumBGPNodeConfigOverride.
type override struct {
	slim.Meta      `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           instances `json:"spec"`
}

// nodeConfig is what is kept of a CiliumBGPNodeConfig.
type nodeConfig struct {
	nodeConfigMeta `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           instances `json:"spec"`
}

type nodeConfigMeta struct {
	slim.Meta
	Owners            []slim.OwnerReference `json:"ownerReferences"`
	CreationTimestamp slim.Time             `json:"creationTimestamp"`
	DeletionTimestamp slim.Time             `json:"deletionTimestamp"`
}

type instances struct {
	BGPInstances []instance `json:"bgpInstances"`
}

// instance is a router in any of the objects, which have a part of the fields each.
type instance struct {
	Name      slim.String `json:"name"`
	LocalASN  int64       `json:"localASN"`
	RouterID  slim.String `json:"routerID"`
	LocalPort int32       `json:"localPort"`
	Peers     []peer      `json:"peers"`
}

// peer is a peer of a router in any of the objects.
type peer struct {
	Name          slim.String    `json:"name"`
	PeerAddress   slim.String    `json:"peerAddress"`
	PeerASN       int64          `json:"peerASN"`
	LocalAddress  slim.String    `json:"localAddress"`
	AutoDiscovery *autoDiscovery `json:"autoDiscovery"`
	PeerConfigRef *peerConfigRef `json:"peerConfigRef"`
}

type autoDiscovery struct {
	Mode           slim.String     `json:"mode"`
	DefaultGateway *defaultGateway `json:"defaultGateway"`
}

type defaultGateway struct {
	AddressFamily slim.String `json:"addressFamily"`
}

type peerConfigRef struct {
	Group slim.String `json:"group"`
	Kind  slim.String `json:"kind"`
	Name  slim.String `json:"name"`
}

// peerConfig is what is kept of a CiliumBGPPeerConfig.
type peerConfig struct {
	configMeta     `json:"metadata"`
	slim.Undecoded `json:"-"`
	APIVersion     slim.String      `json:"apiVersion"`
	Spec           peerConfigSpec   `json:"spec"`
	Status         conditionsStatus `json:"status"`
}

type peerConfigSpec struct {
	AuthSecretRef string `json:"authSecretRef"`
}

type conditionsStatus struct {
	Conditions []condition `json:"conditions"`
}

// condition is a metav1.Condition without its time.
type condition struct {
	Type               slim.String `json:"type"`
	Status             slim.String `json:"status"`
	Reason             slim.String `json:"reason"`
	Message            string      `json:"message"`
	ObservedGeneration int64       `json:"observedGeneration"`
}

// routerID is the router ID as an address, the zero one if there is none that can be parsed.
func (i *instance) routerID() netip.Addr {
	a, _ := netip.ParseAddr(i.RouterID.String())
	return a
}
