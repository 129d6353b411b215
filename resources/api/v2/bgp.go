// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

// BGPFamily is an address family that routers exchange.
type BGPFamily struct {
	// Address family.
	//
	// +required
	// +kubebuilder:validation:Enum=ipv4;ipv6;l2vpn;ls;opaque
	AFI string `json:"afi"`
	// Subsequent address family.
	//
	// +required
	// +kubebuilder:validation:Enum=unicast;multicast;mpls_label;encapsulation;vpls;evpn;ls;sr_policy;mup;mpls_vpn;mpls_vpn_multicast;route_target_constraints;flowspec_unicast;flowspec_vpn;key_value
	SAFI string `json:"safi"`
}

// BGPCommunities are the communities that a route is marked with.
type BGPCommunities struct {
	// Communities of 32 bits, as one number or two numbers of 16 bits.
	Standard []BGPStandardCommunity `json:"standard,omitempty"`
	// Communities that have a name.
	WellKnown []BGPWellKnownCommunity `json:"wellKnown,omitempty"`
	// Communities of 96 bits, as three numbers.
	Large []BGPLargeCommunity `json:"large,omitempty"`
}

// BGPStandardCommunity is a community of 32 bits, as one number or two numbers of 16 bits.
//
// +kubebuilder:validation:Pattern=`^([0-9]|[1-9][0-9]{1,8}|[1-3][0-9]{9}|4[01][0-9]{8}|42[0-8][0-9]{7}|429[0-3][0-9]{6}|4294[0-8][0-9]{5}|42949[0-5][0-9]{4}|429496[0-6][0-9]{3}|4294967[01][0-9]{2}|42949672[0-8][0-9]|429496729[0-5])$|^([0-9]|[1-9][0-9]{1,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]):([0-9]|[1-9][0-9]{1,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$`
type BGPStandardCommunity = string

// BGPWellKnownCommunity is a community that has a name.
//
// +kubebuilder:validation:Enum=internet;planned-shut;accept-own;route-filter-translated-v4;route-filter-v4;route-filter-translated-v6;route-filter-v6;llgr-stale;no-llgr;blackhole;no-export;no-advertise;no-export-subconfed;no-peer
type BGPWellKnownCommunity = string

// BGPLargeCommunity is a community of 96 bits, as three numbers.
//
// +kubebuilder:validation:Pattern=`^([0-9]|[1-9][0-9]{1,8}|[1-3][0-9]{9}|4[01][0-9]{8}|42[0-8][0-9]{7}|429[0-3][0-9]{6}|4294[0-8][0-9]{5}|42949[0-5][0-9]{4}|429496[0-6][0-9]{3}|4294967[01][0-9]{2}|42949672[0-8][0-9]|429496729[0-5]):([0-9]|[1-9][0-9]{1,8}|[1-3][0-9]{9}|4[01][0-9]{8}|42[0-8][0-9]{7}|429[0-3][0-9]{6}|4294[0-8][0-9]{5}|42949[0-5][0-9]{4}|429496[0-6][0-9]{3}|4294967[01][0-9]{2}|42949672[0-8][0-9]|429496729[0-5]):([0-9]|[1-9][0-9]{1,8}|[1-3][0-9]{9}|4[01][0-9]{8}|42[0-8][0-9]{7}|429[0-3][0-9]{6}|4294[0-8][0-9]{5}|42949[0-5][0-9]{4}|429496[0-6][0-9]{3}|4294967[01][0-9]{2}|42949672[0-8][0-9]|429496729[0-5])$`
type BGPLargeCommunity = string

// BGPServiceAddressType says which addresses of a Service are advertised.
//
// +kubebuilder:validation:Enum=LoadBalancerIP;ClusterIP;ExternalIP
type BGPServiceAddressType string

// The addresses of a Service.
const (
	BGPLoadBalancerIP BGPServiceAddressType = "LoadBalancerIP"
	BGPClusterIP      BGPServiceAddressType = "ClusterIP"
	BGPExternalIP     BGPServiceAddressType = "ExternalIP"
)

// BGPGracefulRestart says whether peers keep their routes while the agent restarts.
type BGPGracefulRestart struct {
	// Whether they do.
	//
	// +required
	Enabled bool `json:"enabled"`
	// How long they do, in seconds.
	//
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4095
	RestartTimeSeconds int32 `json:"restartTimeSeconds,omitempty"`
}

// BGPPeerConfigReference names the settings of a peer.
type BGPPeerConfigReference struct {
	// Group of the settings' kind.
	//
	// +kubebuilder:default=cilium.io
	Group string `json:"group,omitempty"`
	// Kind of the settings.
	//
	// +kubebuilder:default=CiliumBGPPeerConfig
	Kind string `json:"kind,omitempty"`
	// Name of the settings.
	//
	// +required
	Name string `json:"name"`
}

// BGPAutoDiscovery says how the address of a peer is found.
type BGPAutoDiscovery struct {
	// The way.
	//
	// +required
	// +kubebuilder:validation:Enum=DefaultGateway
	Mode string `json:"mode"`
	// What the way by the default gateway needs to know.
	DefaultGateway *BGPDefaultGateway `json:"defaultGateway,omitempty"`
}

// BGPDefaultGateway chooses a default gateway of a node.
type BGPDefaultGateway struct {
	// Address family of the gateway.
	//
	// +required
	// +kubebuilder:validation:Enum=ipv4;ipv6
	AddressFamily string `json:"addressFamily"`
}

// BGPTimers are the timers that a router proposes for its sessions.
type BGPTimers struct {
	// Time after which a failed attempt to connect is repeated, in seconds.
	//
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	ConnectRetryTimeSeconds int32 `json:"connectRetryTimeSeconds,omitempty"`
	// Time without a message after which the session is given up, in seconds.
	//
	// +kubebuilder:default=90
	// +kubebuilder:validation:Minimum=3
	// +kubebuilder:validation:Maximum=65535
	HoldTimeSeconds int32 `json:"holdTimeSeconds,omitempty"`
	// Time between two signs of life, in seconds.
	//
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	KeepAliveTimeSeconds int32 `json:"keepAliveTimeSeconds,omitempty"`
}
