// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package release

// The definitions.
var (
	// SchemaVersion is the lowest value of the label io.cilium.k8s.crd.schema.version that the originals of a release give to
	// their definitions.
	SchemaVersion = question("SchemaVersion", "Which schema version do the definitions of the original have?", "CRD-23",
		[...]string{"1.30.8", "1.31.11", "1.32.6", "1.33.9"})

	// ExternalWorkloads is whether anything waits for the definition of CiliumExternalWorkload.
	ExternalWorkloads = question("ExternalWorkloads", "Is CiliumExternalWorkload a kind that is waited for?", "CRD-24",
		[...]bool{true, false, false, false})

	// BGPPeeringPolicies is whether agents with BGP wait for the definition of CiliumBGPPeeringPolicy.
	BGPPeeringPolicies = question("BGPPeeringPolicies", "Do agents with BGP wait for CiliumBGPPeeringPolicy?", "CRD-24",
		[...]bool{true, true, false, false})

	// GatewayClassConfigs is whether Gateway API has parameters of classes in CiliumGatewayClassConfigs.
	GatewayClassConfigs = question("GatewayClassConfigs", "Does Gateway API have CiliumGatewayClassConfigs?", "CRD-24",
		[...]bool{false, true, true, true})

	// DatapathPlugins is whether agents with plugins wait for the definition of CiliumDatapathPlugin.
	DatapathPlugins = question("DatapathPlugins", "Do agents with datapath plugins wait for CiliumDatapathPlugin?", "CRD-24",
		[...]bool{false, false, false, true})

	// EndpointsOffWithoutPolicies is whether disable-endpoint-crd holds without a kvstore where all policies are switched off.
	EndpointsOffWithoutPolicies = question("EndpointsOffWithoutPolicies", "Can a cluster without policies and kvstore do without CiliumEndpoints?", "CONF-15",
		[...]bool{false, true, true, true})

	// EndpointsOffWithSlices is whether disable-endpoint-crd can be combined with enable-cilium-endpoint-slice, and then holds
	// without a kvstore.
	EndpointsOffWithSlices = question("EndpointsOffWithSlices", "Can a cluster with CiliumEndpointSlices do without CiliumEndpoints?", "CONF-15",
		[...]bool{false, false, false, true})

	// EmptyRequires is whether fromRequires and toRequires of policies have to be empty: agents do not know them any more.
	EmptyRequires = question("EmptyRequires", "Are fromRequires and toRequires of policies refused?", "CRD-22",
		[...]bool{false, false, true, true})

	// OnlyHTTPAndDNS is whether agents know no rules for messages but those of HTTP and DNS.
	OnlyHTTPAndDNS = question("OnlyHTTPAndDNS", "Are rules for Kafka and other L7 protocols refused?", "CRD-22",
		[...]bool{false, false, false, true})

	// PolicyNeedsSpec is whether a policy without spec and specs is refused.
	PolicyNeedsSpec = question("PolicyNeedsSpec", "Is a policy without spec and specs refused?", "CRD-22",
		[...]bool{false, false, false, true})

	// ServiceOptionsOfServices is whether a CiliumBGPAdvertisement can have options of Services only where it is of the type Service.
	ServiceOptionsOfServices = question("ServiceOptionsOfServices", "Are options of Services refused in other BGP advertisements?", "CRD-22",
		[...]bool{false, false, true, true})

	// FixedMaskSize is whether the mask size of a CiliumPodIPPool can never change.
	FixedMaskSize = question("FixedMaskSize", "Is the mask size of a CiliumPodIPPool fixed?", "CRD-22",
		[...]bool{false, false, false, true})
)

// The nodes of the cluster.
var (
	// NodeKeysByOperator is whether the operator writes keys of nodes that no agent holds. Later, the key of a node whose agent is gone ends
	// with the agent's lease.
	NodeKeysByOperator = question("NodeKeysByOperator", "Does the operator write the keys of nodes to the kvstore?", "NSYN-17",
		[...]bool{true, true, false, false})
)

// The identities of pods.
var (
	// ServiceAccountsInList is whether the default label filter of agents includes the service account.
	ServiceAccountsInList = question("ServiceAccountsInList", "Do identities keep the service account where labels are an allow list?", "ID-8",
		[...]bool{false, true, true, true})

	// TopologyOfNodes is whether identities have labels of pods that the API server copies from nodes.
	TopologyOfNodes = question("TopologyOfNodes", "Are the pods' labels topology.kubernetes.io part of identities?", "ID-8",
		[...]bool{true, true, true, false})

	// PortsInIdentities is whether identities of pods have their named ports.
	PortsInIdentities = question("PortsInIdentities", "Are named ports of pods part of identities?", "ID-32",
		[...]bool{false, false, false, true})
)

// Network policies.
var (
	// GroupsAreCIDRGroups is whether agents take the addresses of groups of a cloud from CiliumCIDRGroups.
	GroupsAreCIDRGroups = question("GroupsAreCIDRGroups", "Are groups of a cloud CiliumCIDRGroups, and no derived policies?", "DERIV-18",
		[...]bool{false, false, false, true})

	// LaterFindings is whether the checks of policies are those of 1.18 and later: their order, their texts, and what they allow.
	LaterFindings = question("LaterFindings", "Are policies checked as from 1.18 on: rules without entries are not valid, toServices with toPorts and cidrGroupSelector are?", "VALID-20",
		[...]bool{false, true, true, true})

	// PortProtocols are the protocols that ports of policies can have.
	PortProtocols = question("PortProtocols", "Which protocols can ports of policies have?", "VALID-20",
		[...]string{"tcp | udp | sctp | any", "tcp | udp | sctp | any", "tcp | udp | sctp | vrrp | igmp | any", "tcp | udp | sctp | vrrp | igmp | gre | ipip | ipv6 | esp | ah | any"})

	// PortsCanBeEmpty is whether enable-extended-ip-protocols allows ports of policies without a number.
	PortsCanBeEmpty = question("PortsCanBeEmpty", "Can ports of policies be empty, if an option says so, and are names checked for underscores and length?", "VALID-20",
		[...]bool{false, false, true, true})

	// ExceptsWithin is whether an exception of a CIDR of a policy is to be no larger than that.
	ExceptsWithin = question("ExceptsWithin", "Is an exception that is larger than its CIDR not valid, and a group selector sanitized?", "VALID-20",
		[...]bool{false, false, false, true})

	// AuthenticationChecked is whether rules with authentication are not valid where that is off.
	AuthenticationChecked = question("AuthenticationChecked", "Are rules with authentication not valid while it is off?", "VALID-21",
		[...]bool{false, false, false, true})

	// CheckedWherePolicies is whether policies of both kinds are checked only where agents enforce one of them.
	CheckedWherePolicies = question("CheckedWherePolicies", "Are policies not checked where agents enforce neither kind?", "VALID-22",
		[...]bool{false, true, true, true})

	// CheckedByKind is whether policies of a kind are checked only where agents enforce that kind.
	CheckedByKind = question("CheckedByKind", "Are policies of a kind not checked where agents do not enforce it?", "VALID-22",
		[...]bool{false, false, false, true})
)

// The CIDRs of nodes.
var (
	// DuplicatesTakenOut is whether agents expect that a CIDR that another node has is taken out of the podCIDRs of theirs.
	DuplicatesTakenOut = question("DuplicatesTakenOut", "Is a pod CIDR that another node has taken out of podCIDRs, if the node keeps one of the other family?", "POOL-42",
		[...]bool{false, false, false, true})
)

// CIDRs of pools.
var (
	// CIDRsByAddress is whether agents sort the CIDRs of a pool by address, not as texts.
	CIDRsByAddress = question("CIDRsByAddress", "Are the CIDRs that a node has of a pool sorted by address?", "MPOOL-1",
		[...]bool{false, false, false, true})

	// OrphansNamed is whether the error about a CIDR whose pool does not exist names the CIDR, as an orphan.
	OrphansNamed = question("OrphansNamed", "Does a node's error name the CIDRs whose pool does not exist?", "MPOOL-29",
		[...]bool{false, false, true, true})

	// PoolErrorsPrefixed is whether the error of a node with pools begins with what the operator was about to do.
	PoolErrorsPrefixed = question("PoolErrorsPrefixed", "Does a node's error begin with ipam-multi-pool-sync allocation failed?", "MPOOL-47",
		[...]bool{false, false, false, true})

	// IPv6PrefixesOfInterfaces is whether pods can have addresses of a prefix of IPv6 that an interface of the cloud has.
	IPv6PrefixesOfInterfaces = question("IPv6PrefixesOfInterfaces", "Can an interface of the cloud have a prefix of IPv6 for pods?", "CIPAM-49",
		[...]bool{false, false, false, true})
)

// LoadBalancer Services.
var (
	// PortsByProtocol is whether agents always tell ports of one number apart by their protocol, so that Services can share an address.
	PortsByProtocol = question("PortsByProtocol", "Can a port of TCP and one of UDP with the same number share an address, whatever the options?", "LBIP-22",
		[...]bool{false, false, true, true})
)

// Slices of endpoints.
var (
	// ServiceAccountsInSlices is whether entries of CiliumEndpointSlices have the service accounts of pods.
	ServiceAccountsInSlices = question("ServiceAccountsInSlices", "Do entries of CiliumEndpointSlices have service accounts?", "CES-30",
		[...]bool{false, false, true, true})

	// MixedSlices is whether slices have endpoints of any identity unless an option says otherwise.
	MixedSlices = question("MixedSlices", "Do CiliumEndpointSlices have endpoints of any identity by default?", "CES-32",
		[...]bool{false, true, true, true})

	// BoundedSliceRates is whether rates of writes of slices are capped.
	BoundedSliceRates = question("BoundedSliceRates", "Are the limits of --ces-rate-limits capped?", "CES-32",
		[...]bool{true, true, false, false})

	// PriorityNamespaces is whether slices of Namespaces with an annotation are written before others.
	PriorityNamespaces = question("PriorityNamespaces", "Are slices of Namespaces with priority written first?", "CES-34",
		[...]bool{false, true, true, true})

	// PodUIDsInSlices is whether entries of CiliumEndpointSlices have the uids of pods.
	PodUIDsInSlices = question("PodUIDsInSlices", "Do entries of CiliumEndpointSlices have uids of pods?", "CES-30",
		[...]bool{false, false, false, true})
)

// Services of several clusters.
var (
	// CopiedEndpoints is whether derived Services have copies of all EndpointSlices of this cluster, in place of a selector.
	CopiedEndpoints = question("CopiedEndpoints", "Do derived Services have copies of EndpointSlices, and no selector?", "MCS-40",
		[...]bool{false, true, true, true})

	// ImportsFollowExports is whether the original makes ServiceImports of exports, and has them follow those.
	ImportsFollowExports = question("ImportsFollowExports", "Does the original make ServiceImports, of what clusters export?", "MCS-42",
		[...]bool{false, true, true, true})

	// TrafficInExports is whether exports say their IP families and where internal traffic goes, also where that is the default.
	TrafficInExports = question("TrafficInExports", "Do exports always say their IP families and internal traffic policy?", "MCS-36",
		[...]bool{false, false, true, true})

	// SupportedFamilies is whether derived Services have all IP families that the API server has, and say which of them are served.
	SupportedFamilies = question("SupportedFamilies", "Do derived Services have both IP families, and say which are supported?", "MCS-38",
		[...]bool{false, false, true, true})

	// AgreedPortsAlone is whether copies of EndpointSlices lack the ports that the derived Service has with another number.
	AgreedPortsAlone = question("AgreedPortsAlone", "Are ports in conflict left out of the copies of EndpointSlices?", "MCS-27",
		[...]bool{false, false, true, true})
)

// Services in etcd.
var (
	// ServingBackends is whether endpoints that are not ready, and serving, are backends whatever enable-k8s-terminating-endpoint says: charts
	// of these releases do not have it.
	ServingBackends = question("ServingBackends", "Are endpoints that terminate and still serve backends, whatever the options?", "SSYNC-6",
		[...]bool{false, true, true, true})

	// HeadlessByLabel is whether a Service with an address is headless for other clusters if it has the label service.kubernetes.io/headless.
	HeadlessByLabel = question("HeadlessByLabel", "Is a Service headless that has the label of headless ones?", "SSYNC-3",
		[...]bool{false, true, true, true})

	// ZonesOfBackends is whether the value of a Service has the zones of its backends, and no hostnames where there are none.
	ZonesOfBackends = question("ZonesOfBackends", "Do Services in etcd have the zones of their backends, and hostnames only if there are any?", "SSYNC-22",
		[...]bool{false, false, true, true})

	// SlicesInKVStore is whether the EndpointSlices of exported Services are in etcd, too.
	SlicesInKVStore = question("SlicesInKVStore", "Are the EndpointSlices of exported Services in etcd, too?", "SSYNC-24",
		[...]bool{false, false, false, true})
)

// Ingresses and Gateways.
var (
	// ShortConfigNames is whether the names of CiliumEnvoyConfigs are shortened to 63 characters.
	ShortConfigNames = question("ShortConfigNames", "Are the names of CiliumEnvoyConfigs shortened?", "ENV-32",
		[...]bool{false, false, false, true})

	// InternalAddresses is whether Envoy is told which clients are internal, and timeouts of streams always: from 1.33 on it takes none.
	InternalAddresses = question("InternalAddresses", "Is Envoy told which clients are internal?", "ENV-35",
		[...]bool{false, true, true, true})

	// ZeroTimeouts is whether an idle timeout of 0 is none, in place of the default.
	ZeroTimeouts = question("ZeroTimeouts", "Is an idle timeout of 0 none?", "ENV-35",
		[...]bool{true, false, false, true})

	// DualStackServices is whether new Services of Ingresses and Gateways have both families where the cluster has them.
	DualStackServices = question("DualStackServices", "Do Services of Ingresses and Gateways have both families?", "ENV-37",
		[...]bool{false, true, true, true})

	// ListenersPerPort is whether agents redirect ports of one Service to several listeners of Envoy. Older ones redirect all to the last.
	ListenersPerPort = question("ListenersPerPort", "Can the ports of one Service lead to several listeners of Envoy?", "ENV-39",
		[...]bool{false, false, false, true})

	// RedirectsByScheme is whether a redirect to a scheme leaves the requests alone that came by it.
	RedirectsByScheme = question("RedirectsByScheme", "Is a redirect to a scheme for the requests of other schemes alone?", "ENV-43",
		[...]bool{false, false, false, true})

	// HostsOfTCP is whether the statistics of TLS that is passed through are named after its hosts.
	HostsOfTCP = question("HostsOfTCP", "Are statistics of TLS that is passed through named after its hosts?", "ENV-44",
		[...]bool{false, false, false, true})

	// SharedHTTPSPort is whether port 443 of the load balancer that Ingresses share leads to Envoy even if none of them has TLS.
	SharedHTTPSPort = question("SharedHTTPSPort", "Does port 443 of the shared load balancer lead to Envoy without any TLS?", "ING-28",
		[...]bool{false, false, false, true})

	// SourceAddressLabels is whether agents read the label alone that has connections to backends come from the address of the node.
	SourceAddressLabels = question("SourceAddressLabels", "Is the source address of connections to backends in a label alone?", "ENV-14",
		[...]bool{true, true, false, false})

	// ExternalAuth is whether Envoy asks other servers whether a request is allowed.
	ExternalAuth = question("ExternalAuth", "Does Envoy ask servers whether a request is allowed?", "GW-57",
		[...]bool{false, false, false, true})

	// GatewaysAtNodes is whether Gateways on the network of nodes have Services of type NodePort, and Gateways of that type the addresses of
	// nodes in their status.
	GatewaysAtNodes = question("GatewaysAtNodes", "Do Gateways without a load balancer have ports and addresses of nodes?", "GW-50",
		[...]bool{false, false, false, true})
)
