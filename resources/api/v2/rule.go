// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

// Rule says what traffic the chosen pods or nodes may have.
// It chooses either pods, by endpointSelector, or nodes, by nodeSelector.
//
// Lists of a rule are written when they are present, if empty:
// an absent list of peers sets no condition, and an empty one matches no peer.
//
// +skep:validation:oneOf=endpointSelector;nodeSelector
// +skep:validation:anyOf=ingress;ingressDeny;egress;egressDeny
type Rule struct {
	// Pods that the rule is about; an empty selector chooses all.
	EndpointSelector *LabelSelector `json:"endpointSelector,omitempty"`
	// Nodes that the rule is about; an empty selector chooses all.
	NodeSelector *LabelSelector `json:"nodeSelector,omitempty"`
	// Incoming traffic that is let through.
	Ingress []IngressRule `json:"ingress,omitzero"`
	// Incoming traffic that is dropped, whatever else lets it through.
	IngressDeny []IngressDenyRule `json:"ingressDeny,omitzero"`
	// Outgoing traffic that is let through.
	Egress []EgressRule `json:"egress,omitzero"`
	// Outgoing traffic that is dropped, whatever else lets it through.
	EgressDeny []EgressDenyRule `json:"egressDeny,omitzero"`
	// Labels by which the rule itself is known to agents.
	Labels []RuleLabel `json:"labels,omitzero"`
	// Whether traffic that no rule mentions is dropped.
	EnableDefaultDeny DefaultDeny `json:"enableDefaultDeny,omitzero"`
	// What is logged about traffic that the rule decides on.
	Log RuleLog `json:"log,omitzero"`
	// What the rule is for, for people.
	Description string `json:"description,omitempty"`
}

// RuleLog is what is logged about traffic that a rule decides on.
type RuleLog struct {
	// Text that flow logs bear.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^\PC*$`
	Value string `json:"value,omitempty"`
}

// DefaultDeny says, by direction, whether traffic that no rule mentions is dropped.
// Where it does not say, traffic is dropped in the directions that the rule has entries for.
type DefaultDeny struct {
	// Whether such incoming traffic is dropped.
	Ingress *bool `json:"ingress,omitempty"`
	// Whether such outgoing traffic is dropped.
	Egress *bool `json:"egress,omitempty"`
}

// RuleLabel is a label of a rule.
type RuleLabel struct {
	// Name of the label.
	//
	// +required
	Key string `json:"key"`
	// Value of the label.
	Value string `json:"value,omitempty"`
	// Who has set the label.
	Source string `json:"source,omitempty"`
}

// IngressRule lets incoming traffic through that meets all of its conditions.
type IngressRule struct {
	IngressPeers `json:",inline"`
	// Ports, and on them messages, that are let through.
	ToPorts []PortRule `json:"toPorts,omitzero"`
	// ICMP messages that are let through.
	ICMPs []ICMPRule `json:"icmps,omitzero"`
	// Whether the peer has to prove its identity.
	Authentication *Authentication `json:"authentication,omitempty"`
}

// IngressDenyRule drops incoming traffic that meets all of its conditions.
type IngressDenyRule struct {
	IngressPeers `json:",inline"`
	// Ports that are closed.
	ToPorts []PortDenyRule `json:"toPorts,omitzero"`
	// ICMP messages that are dropped.
	ICMPs []ICMPRule `json:"icmps,omitzero"`
}

// IngressPeers says where incoming traffic is from.
type IngressPeers struct {
	// Pods that any of these selectors chooses.
	FromEndpoints []LabelSelector `json:"fromEndpoints,omitzero"`
	// Selectors that all have to choose the pod, besides any other condition.
	// Agents up to 1.18 enforce them; those of later releases take only an empty list.
	FromRequires []LabelSelector `json:"fromRequires,omitzero"`
	// Addresses outside the cluster.
	//
	// +kubebuilder:validation:items:Format=cidr
	FromCIDR []string `json:"fromCIDR,omitzero"`
	// Addresses outside the cluster, less exceptions.
	FromCIDRSet []CIDRRule `json:"fromCIDRSet,omitzero"`
	// Peers that have a fixed name.
	FromEntities []Entity `json:"fromEntities,omitzero"`
	// Members of groups that a cloud provider keeps.
	FromGroups []PolicyGroup `json:"fromGroups,omitzero"`
	// Nodes that any of these selectors chooses.
	FromNodes []LabelSelector `json:"fromNodes,omitzero"`
}

// EgressRule lets outgoing traffic through that meets all of its conditions.
type EgressRule struct {
	EgressPeers `json:",inline"`
	// Ports, and on them messages, that are let through.
	ToPorts []PortRule `json:"toPorts,omitzero"`
	// Names whose addresses are let through.
	ToFQDNs []FQDNSelector `json:"toFQDNs,omitzero"`
	// ICMP messages that are let through.
	ICMPs []ICMPRule `json:"icmps,omitzero"`
	// Whether the peer has to prove its identity.
	Authentication *Authentication `json:"authentication,omitempty"`
}

// EgressDenyRule drops outgoing traffic that meets all of its conditions.
type EgressDenyRule struct {
	EgressPeers `json:",inline"`
	// Ports that are closed.
	ToPorts []PortDenyRule `json:"toPorts,omitzero"`
	// ICMP messages that are dropped.
	ICMPs []ICMPRule `json:"icmps,omitzero"`
}

// EgressPeers says where outgoing traffic goes.
type EgressPeers struct {
	// Pods that any of these selectors chooses.
	ToEndpoints []LabelSelector `json:"toEndpoints,omitzero"`
	// Selectors that all have to choose the pod, besides any other condition.
	// Agents up to 1.18 enforce them; those of later releases take only an empty list.
	ToRequires []LabelSelector `json:"toRequires,omitzero"`
	// Addresses outside the cluster.
	//
	// +kubebuilder:validation:items:Format=cidr
	ToCIDR []string `json:"toCIDR,omitzero"`
	// Addresses outside the cluster, less exceptions.
	ToCIDRSet []CIDRRule `json:"toCIDRSet,omitzero"`
	// Peers that have a fixed name.
	ToEntities []Entity `json:"toEntities,omitzero"`
	// Backends of Kubernetes Services.
	ToServices []PolicyService `json:"toServices,omitzero"`
	// Members of groups that a cloud provider keeps.
	ToGroups []PolicyGroup `json:"toGroups,omitzero"`
	// Nodes that any of these selectors chooses.
	ToNodes []LabelSelector `json:"toNodes,omitzero"`
}

// Entity is a peer that has a fixed name.
//
// +kubebuilder:validation:Enum=all;world;cluster;host;init;ingress;unmanaged;remote-node;health;none;kube-apiserver
type Entity string

// The entities.
const (
	EntityAll           Entity = "all"
	EntityWorld         Entity = "world"
	EntityCluster       Entity = "cluster"
	EntityHost          Entity = "host"
	EntityInit          Entity = "init"
	EntityIngress       Entity = "ingress"
	EntityUnmanaged     Entity = "unmanaged"
	EntityRemoteNode    Entity = "remote-node"
	EntityHealth        Entity = "health"
	EntityNone          Entity = "none"
	EntityKubeAPIServer Entity = "kube-apiserver"
)

// CIDRRule is a range of addresses, or groups of ranges, less exceptions.
//
// +skep:validation:oneOf=cidr;cidrGroupRef;cidrGroupSelector
type CIDRRule struct {
	// The range.
	//
	// +kubebuilder:validation:Format=cidr
	CIDR string `json:"cidr,omitempty"`
	// Name of the CiliumCIDRGroup that holds the ranges.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	CIDRGroupRef string `json:"cidrGroupRef,omitempty"`
	// CiliumCIDRGroups that hold the ranges.
	CIDRGroupSelector *LabelSelector `json:"cidrGroupSelector,omitempty"`
	// Ranges within that do not count.
	//
	// +kubebuilder:validation:items:Format=cidr
	Except []string `json:"except,omitzero"`
}

// FQDNSelector chooses DNS names.
//
// +skep:validation:oneOf=matchName;matchPattern
type FQDNSelector struct {
	// The whole name.
	//
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([-a-zA-Z0-9_]+[.]?)+$`
	MatchName string `json:"matchName,omitempty"`
	// The name with asterisks for any run of letters within a label.
	//
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([-a-zA-Z0-9_*]+[.]?)+$`
	MatchPattern string `json:"matchPattern,omitempty"`
}

// PolicyService chooses Kubernetes Services.
type PolicyService struct {
	// One Service by its name.
	K8sService *K8sService `json:"k8sService,omitempty"`
	// Services by their labels.
	K8sServiceSelector *K8sServiceSelector `json:"k8sServiceSelector,omitempty"`
}

// K8sService names a Service.
type K8sService struct {
	// Name of the Service.
	ServiceName string `json:"serviceName,omitempty"`
	// Namespace of the Service.
	Namespace string `json:"namespace,omitempty"`
}

// K8sServiceSelector chooses Services by their labels.
type K8sServiceSelector struct {
	// Labels of the Services.
	//
	// +required
	Selector LabelSelector `json:"selector"`
	// Namespace of the Services; any when it is empty.
	Namespace string `json:"namespace,omitempty"`
}

// PolicyGroup is a group that a cloud provider keeps.
type PolicyGroup struct {
	// Instances on AWS.
	AWS *AWSGroup `json:"aws,omitempty"`
}

// AWSGroup chooses instances on AWS.
type AWSGroup struct {
	// Tags of the instances.
	Labels map[string]string `json:"labels,omitempty"`
	// Identifiers of security groups.
	SecurityGroupsIDs []string `json:"securityGroupsIds,omitzero"`
	// Names of security groups.
	SecurityGroupsNames []string `json:"securityGroupsNames,omitzero"`
	// Region of the instances.
	Region string `json:"region,omitempty"`
}

// Authentication says whether a peer has to prove its identity.
type Authentication struct {
	// Whether it has to.
	//
	// +required
	Mode AuthenticationMode `json:"mode"`
}

// AuthenticationMode says whether a peer has to prove its identity.
//
// +kubebuilder:validation:Enum=disabled;required;test-always-fail
type AuthenticationMode string

// The modes of authentication.
const (
	AuthenticationDisabled       AuthenticationMode = "disabled"
	AuthenticationRequired       AuthenticationMode = "required"
	AuthenticationTestAlwaysFail AuthenticationMode = "test-always-fail"
)
