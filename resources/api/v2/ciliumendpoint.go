// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CiliumEndpoint is the network face of a pod, written by the agent of its node.
// It has no spec, and its status is written with the object itself.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ciliumendpoints,singular=ciliumendpoint,scope=Namespaced,shortName={cep,ciliumep},categories={cilium}
// +kubebuilder:printcolumn:name="Security Identity",type=integer,JSONPath=`.status.identity.id`,description="Number of the security identity"
// +kubebuilder:printcolumn:name="Ingress Enforcement",type=string,priority=1,JSONPath=`.status.policy.ingress.state`,description="State of policy enforcement for incoming traffic"
// +kubebuilder:printcolumn:name="Egress Enforcement",type=string,priority=1,JSONPath=`.status.policy.egress.state`,description="State of policy enforcement for outgoing traffic"
// +kubebuilder:printcolumn:name="Endpoint State",type=string,JSONPath=`.status.state`,description="Where the endpoint is in its life"
// +kubebuilder:printcolumn:name="IPv4",type=string,JSONPath=`.status.networking.addressing[0].ipv4`,description="First IPv4 address"
// +kubebuilder:printcolumn:name="IPv6",type=string,JSONPath=`.status.networking.addressing[0].ipv6`,description="First IPv6 address"
type CiliumEndpoint struct {
	metav1.TypeMeta `json:",inline"`
	// +required
	metav1.ObjectMeta `json:"metadata"`

	// What the agent reports about the endpoint.
	Status CiliumEndpointStatus `json:"status,omitzero"`
}

// CiliumEndpointList is a list of CiliumEndpoints.
//
// +kubebuilder:object:root=true
type CiliumEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []CiliumEndpoint `json:"items"`
}

// CiliumEndpointStatus is what the agent reports about an endpoint.
type CiliumEndpointStatus struct {
	// Number of the endpoint on its node.
	ID int64 `json:"id,omitempty"`
	// Background work of the agent for the endpoint.
	Controllers []EndpointController `json:"controllers,omitempty"`
	// Names that other systems know the endpoint by.
	ExternalIdentifiers EndpointIdentifiers `json:"external-identifiers,omitzero"`
	// Condition of the endpoint's parts.
	Health EndpointHealth `json:"health,omitzero"`
	// Security identity; absent until the agent has got one for the endpoint.
	Identity *EndpointIdentity `json:"identity,omitempty"`
	// Latest changes of state.
	Log []EndpointStatusChange `json:"log,omitempty"`
	// Addresses; absent until the agent has set them up.
	Networking *EndpointNetworking `json:"networking,omitempty"`
	// How traffic to the endpoint is encrypted.
	Encryption EncryptionSpec `json:"encryption,omitzero"`
	// What policies come to for the endpoint.
	Policy *EndpointPolicy `json:"policy,omitempty"`
	// State of the visibility policy.
	VisibilityPolicyStatus string `json:"visibility-policy-status,omitempty"`
	// Where the endpoint is in its life.
	State EndpointState `json:"state,omitempty"`
	// Ports that the pod has named.
	NamedPorts []NamedPort `json:"named-ports,omitempty"`
	// Name of the pod's service account.
	ServiceAccount string `json:"service-account,omitempty"`
}

// EndpointState says where an endpoint is in its life.
//
// +kubebuilder:validation:Enum=creating;waiting-for-identity;not-ready;waiting-to-regenerate;regenerating;restoring;ready;disconnecting;disconnected;invalid
type EndpointState string

// The states of an endpoint.
const (
	EndpointCreating            EndpointState = "creating"
	EndpointWaitingForIdentity  EndpointState = "waiting-for-identity"
	EndpointNotReady            EndpointState = "not-ready"
	EndpointWaitingToRegenerate EndpointState = "waiting-to-regenerate"
	EndpointRegenerating        EndpointState = "regenerating"
	EndpointRestoring           EndpointState = "restoring"
	EndpointReady               EndpointState = "ready"
	EndpointDisconnecting       EndpointState = "disconnecting"
	EndpointDisconnected        EndpointState = "disconnected"
	EndpointInvalid             EndpointState = "invalid"
)

// EndpointIdentity is the security identity of an endpoint.
type EndpointIdentity struct {
	// Number of the identity.
	ID int64 `json:"id,omitempty"`
	// Labels of the identity, as source:key=value.
	Labels []string `json:"labels,omitempty"`
}

// EndpointNetworking says where an endpoint is reached.
type EndpointNetworking struct {
	// Addresses of the endpoint. A writer sets it, if only to an empty list.
	//
	// +required
	Addressing []AddressPair `json:"addressing"`
	// Address of the node that the endpoint is on.
	NodeIP string `json:"node,omitempty"`
}

// NamedPort is a port that a pod has given a name.
type NamedPort struct {
	// Name of the port.
	Name string `json:"name,omitempty"`
	// Number of the port.
	Port int `json:"port,omitempty"`
	// Transport protocol of the port.
	Protocol string `json:"protocol,omitempty"`
}

// EndpointController is one piece of background work of the agent for an endpoint.
type EndpointController struct {
	// Name of the work.
	Name string `json:"name,omitempty"`
	// Identifier of the work.
	UUID string `json:"uuid,omitempty"`
	// How the work is scheduled.
	Configuration EndpointControllerConfiguration `json:"configuration,omitzero"`
	// How the work has gone.
	Status EndpointControllerStatus `json:"status,omitzero"`
}

// EndpointControllerConfiguration says how background work is scheduled.
type EndpointControllerConfiguration struct {
	// Whether failed work is tried again.
	ErrorRetry bool `json:"error-retry,omitempty"`
	// Time before the first new try, in nanoseconds.
	ErrorRetryBase int64 `json:"error-retry-base,omitempty"`
	// Time between two runs, in nanoseconds.
	Interval int64 `json:"interval,omitempty"`
}

// EndpointControllerStatus says how background work has gone.
type EndpointControllerStatus struct {
	// Number of failures since the last success.
	ConsecutiveFailureCount int64 `json:"consecutive-failure-count,omitempty"`
	// Number of failures.
	FailureCount int64 `json:"failure-count,omitempty"`
	// What the last failure said.
	LastFailureMsg string `json:"last-failure-msg,omitempty"`
	// Time of the last failure.
	LastFailureTimestamp string `json:"last-failure-timestamp,omitempty"`
	// Time of the last success.
	LastSuccessTimestamp string `json:"last-success-timestamp,omitempty"`
	// Number of successes.
	SuccessCount int64 `json:"success-count,omitempty"`
}

// EndpointIdentifiers are the names that other systems know an endpoint by.
type EndpointIdentifiers struct {
	// Identifier of the attachment that the network plugin was asked for.
	CNIAttachmentID string `json:"cni-attachment-id,omitempty"`
	// Identifier of the container.
	ContainerID string `json:"container-id,omitempty"`
	// Name of the container.
	ContainerName string `json:"container-name,omitempty"`
	// Identifier of the endpoint in Docker.
	DockerEndpointID string `json:"docker-endpoint-id,omitempty"`
	// Identifier of the network in Docker.
	DockerNetworkID string `json:"docker-network-id,omitempty"`
	// Namespace of the pod.
	K8sNamespace string `json:"k8s-namespace,omitempty"`
	// Name of the pod.
	K8sPodName string `json:"k8s-pod-name,omitempty"`
	// Namespace and name of the pod, separated by a slash.
	PodName string `json:"pod-name,omitempty"`
}

// EndpointHealth is the condition of the parts of an endpoint.
type EndpointHealth struct {
	// Condition of the endpoint's programs in the kernel.
	BPF string `json:"bpf,omitempty"`
	// Whether the endpoint is connected to the network.
	Connected bool `json:"connected,omitempty"`
	// Condition of the endpoint as a whole.
	OverallHealth string `json:"overallHealth,omitempty"`
	// Condition of the endpoint's policy.
	Policy string `json:"policy,omitempty"`
}

// EndpointStatusChange is one change of the state of an endpoint.
type EndpointStatusChange struct {
	// Kind of change.
	Code string `json:"code,omitempty"`
	// What happened.
	Message string `json:"message,omitempty"`
	// State that the endpoint took.
	State string `json:"state,omitempty"`
	// Time of the change.
	Timestamp string `json:"timestamp,omitempty"`
}

// EndpointPolicy is what policies come to for an endpoint.
type EndpointPolicy struct {
	// What they come to for incoming traffic.
	Ingress *EndpointPolicyDirection `json:"ingress,omitempty"`
	// What they come to for outgoing traffic.
	Egress *EndpointPolicyDirection `json:"egress,omitempty"`
}

// EndpointPolicyDirection is what policies come to for traffic in one direction.
type EndpointPolicyDirection struct {
	// Whether anything that is not allowed is dropped.
	//
	// +required
	Enforcing bool `json:"enforcing"`
	// Traffic that is let through.
	Allowed []IdentityTraffic `json:"allowed,omitempty"`
	// Traffic that is dropped.
	Denied []IdentityTraffic `json:"denied,omitempty"`
	// Traffic that is about to be let through.
	Adding []IdentityTraffic `json:"adding,omitempty"`
	// Traffic that is about to be let through no more.
	Removing []IdentityTraffic `json:"removing,omitempty"`
	// Whether policy is enforced.
	State string `json:"state,omitempty"`
}

// IdentityTraffic is traffic with the endpoints of one security identity.
type IdentityTraffic struct {
	// Number of the peer's identity.
	Identity int64 `json:"identity,omitempty"`
	// Labels of the peer's identity.
	IdentityLabels map[string]string `json:"identity-labels,omitempty"`
	// Port that the traffic goes to.
	DestPort int `json:"dest-port,omitempty"`
	// Number of the transport protocol.
	Protocol int `json:"protocol,omitempty"`
}
