// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import "k8s.io/apimachinery/pkg/util/intstr"

// PortRule opens ports, and says which messages are let through on them.
type PortRule struct {
	// The ports; all when there are none.
	//
	// +kubebuilder:validation:MaxItems=40
	Ports []PortProtocol `json:"ports,omitzero"`
	// How TLS from the client is ended at the proxy.
	TerminatingTLS *TLSContext `json:"terminatingTLS,omitempty"`
	// How TLS to the server is begun at the proxy.
	OriginatingTLS *TLSContext `json:"originatingTLS,omitempty"`
	// Server names that a TLS client may ask for.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^([-a-zA-Z0-9_*]+[.]?)+$`
	// +listType=set
	ServerNames []string `json:"serverNames,omitzero"`
	// Proxy listener that the traffic is sent through.
	Listener *Listener `json:"listener,omitempty"`
	// Messages that are let through.
	Rules *L7Rules `json:"rules,omitempty"`
}

// PortDenyRule closes ports.
type PortDenyRule struct {
	// The ports; all when there are none.
	Ports []PortProtocol `json:"ports,omitzero"`
}

// PortProtocol is a port, or a range of ports, of one transport protocol or of all.
type PortProtocol struct {
	// Number or name of the port, or the first of a range; 0 or none means any.
	//
	// +kubebuilder:validation:Pattern=`^(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})|([a-zA-Z0-9]-?)*[a-zA-Z](-?[a-zA-Z0-9])*$`
	Port string `json:"port,omitempty"`
	// Last port of the range.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	EndPort int32 `json:"endPort,omitempty"`
	// Transport protocol; any when it is empty.
	Protocol L4Protocol `json:"protocol,omitempty"`
}

// L4Protocol is a transport protocol.
//
// +kubebuilder:validation:Enum=TCP;UDP;SCTP;VRRP;IGMP;GRE;IPIP;IPV6;ESP;AH;ANY
type L4Protocol string

// The transport protocols.
const (
	ProtocolTCP  L4Protocol = "TCP"
	ProtocolUDP  L4Protocol = "UDP"
	ProtocolSCTP L4Protocol = "SCTP"
	ProtocolVRRP L4Protocol = "VRRP"
	ProtocolIGMP L4Protocol = "IGMP"
	ProtocolGRE  L4Protocol = "GRE"
	ProtocolIPIP L4Protocol = "IPIP"
	ProtocolIPv6 L4Protocol = "IPV6"
	ProtocolESP  L4Protocol = "ESP"
	ProtocolAH   L4Protocol = "AH"
	ProtocolAny  L4Protocol = "ANY"
)

// ICMPRule is a set of ICMP messages.
type ICMPRule struct {
	// The messages; any of them counts.
	//
	// +kubebuilder:validation:MaxItems=40
	Fields []ICMPField `json:"fields,omitzero"`
}

// ICMPField is one type of ICMP messages.
type ICMPField struct {
	// Address family of the messages.
	//
	// +kubebuilder:default=IPv4
	Family ICMPFamily `json:"family,omitempty"`
	// Number or name of the type.
	//
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5]|EchoReply|DestinationUnreachable|Redirect|Echo|RouterAdvertisement|RouterSelection|TimeExceeded|ParameterProblem|Timestamp|TimestampReply|Photuris|ExtendedEchoRequest|ExtendedEcho Reply|PacketTooBig|ParameterProblem|EchoRequest|MulticastListenerQuery|MulticastListenerReport|MulticastListenerDone|RouterSolicitation|RouterAdvertisement|NeighborSolicitation|NeighborAdvertisement|RedirectMessage|RouterRenumbering|ICMPNodeInformationQuery|ICMPNodeInformationResponse|InverseNeighborDiscoverySolicitation|InverseNeighborDiscoveryAdvertisement|HomeAgentAddressDiscoveryRequest|HomeAgentAddressDiscoveryReply|MobilePrefixSolicitation|MobilePrefixAdvertisement|DuplicateAddressRequestCodeSuffix|DuplicateAddressConfirmationCodeSuffix)$`
	Type intstr.IntOrString `json:"type"`
}

// ICMPFamily is the address family of ICMP messages.
//
// +kubebuilder:validation:Enum=IPv4;IPv6
type ICMPFamily string

// The families of ICMP messages.
const (
	ICMPv4 ICMPFamily = "IPv4"
	ICMPv6 ICMPFamily = "IPv6"
)

// TLSContext says with which keys one side of a proxied TLS connection is served.
type TLSContext struct {
	// Secret that holds the keys.
	//
	// +required
	Secret SecretReference `json:"secret"`
	// Key of the secret that holds the trusted authorities; ca.crt when it is empty.
	TrustedCA string `json:"trustedCA,omitempty"`
	// Key of the secret that holds the certificate; tls.crt when it is empty.
	Certificate string `json:"certificate,omitempty"`
	// Key of the secret that holds the private key; tls.key when it is empty.
	PrivateKey string `json:"privateKey,omitempty"`
}

// SecretReference names a Kubernetes Secret.
type SecretReference struct {
	// Namespace of the Secret; the agent looks in those it knows when it is empty.
	Namespace string `json:"namespace,omitempty"`
	// Name of the Secret.
	//
	// +required
	Name string `json:"name"`
}

// Listener names a listener of the proxy.
type Listener struct {
	// Configuration that the listener is part of.
	//
	// +required
	EnvoyConfig EnvoyConfigReference `json:"envoyConfig"`
	// Name of the listener within its configuration.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Rank among the listeners that other rules name for the same traffic.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Priority int `json:"priority,omitempty"`
}

// EnvoyConfigReference names a configuration of the proxy.
type EnvoyConfigReference struct {
	// Kind of the configuration; by default the kind that has the scope of the policy.
	//
	// +kubebuilder:validation:Enum=CiliumEnvoyConfig;CiliumClusterwideEnvoyConfig
	Kind string `json:"kind,omitempty"`
	// Name of the configuration.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}
