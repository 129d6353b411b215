// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
)

// Config is the options shared by duties. See docs/wire/configuration.md.
type Config struct {
	ClusterName          string `flag:"cluster-name" usage:"Name of the cluster"`
	ClusterID            uint32 `flag:"cluster-id" usage:"ID of the cluster in its mesh, unique among its clusters"`
	MaxConnectedClusters uint32 `flag:"max-connected-clusters" usage:"Maximum number of clusters in the mesh: 255 or 511" oneof:"255,511"`

	// K8sNamespace is where the operator's own objects live; "" when unset.
	K8sNamespace string `flag:"k8s-namespace" usage:"Namespace of the operator"`

	EnableIPv4 bool `flag:"enable-ipv4" usage:"Enable IPv4 for pods"`
	EnableIPv6 bool `flag:"enable-ipv6" usage:"Enable IPv6 for pods"`

	// IPAM is the mode in which pods get addresses.
	IPAM string `flag:"ipam" usage:"IPAM mode"`

	// KVStore is "etcd", or "" where there is none.
	KVStore string `flag:"kvstore" usage:"Type of the kvstore: etcd, or empty for none"`

	// DisableEndpointCRD and IdentityAllocationMode are as given; what holds is
	// told by EndpointCRD and IdentityMode.
	DisableEndpointCRD        bool   `flag:"disable-endpoint-crd" usage:"Agents do not create CiliumEndpoints" hidden:"true"`
	IdentityAllocationMode    string `flag:"identity-allocation-mode" usage:"Where identities are stored: kvstore, crd, doublewrite-readkvstore or doublewrite-readcrd" oneof:"kvstore,crd,doublewrite-readkvstore,doublewrite-readcrd"`
	EnableCiliumEndpointSlice bool   `flag:"enable-cilium-endpoint-slice" usage:"Group CiliumEndpoints into CiliumEndpointSlices"`

	// CESControllerMode says what slices are made of; see SlimEndpointSlices.
	CESControllerMode string `flag:"ces-controller-mode" usage:"Source of CiliumEndpointSlices: default (CiliumEndpoints) or slim (pods)" oneof:"default,slim"`
	// IdentityManagementMode and the older OperatorManagesIdentities say who makes
	// identities; what holds is told by OperatorIdentities.
	IdentityManagementMode    string `flag:"identity-management-mode" usage:"Component that creates CiliumIdentities: agent, operator, or both during a migration" oneof:"agent,operator,both"`
	OperatorManagesIdentities bool   `flag:"operator-manages-identities" usage:"Create CiliumIdentities in the operator; older form of --identity-management-mode=operator"`

	// What agents enforce. What holds for all policies together is told by PolicyOff.
	EnablePolicy                         string `flag:"enable-policy" usage:"When agents enforce policies: default, always or never" hidden:"true"`
	EnableK8sNetworkPolicy               bool   `flag:"enable-k8s-networkpolicy" usage:"Agents enforce NetworkPolicies" hidden:"true"`
	EnableK8sClusterNetworkPolicy        bool   `flag:"enable-k8s-cluster-network-policy" usage:"Agents enforce ClusterNetworkPolicies" hidden:"true"`
	EnableCiliumNetworkPolicy            bool   `flag:"enable-cilium-network-policy" usage:"Agents enforce CiliumNetworkPolicies" hidden:"true"`
	EnableCiliumClusterwideNetworkPolicy bool   `flag:"enable-cilium-clusterwide-network-policy" usage:"Agents enforce CiliumClusterwideNetworkPolicies" hidden:"true"`

	// How agents encrypt what they send to other nodes.
	EnableIPsec     bool `flag:"enable-ipsec" usage:"Agents encrypt with IPsec" hidden:"true"`
	EnableWireguard bool `flag:"enable-wireguard" usage:"Agents encrypt with WireGuard" hidden:"true"`

	// EnableCiliumNodeCRD is as given; what holds is told by NodeCRD.
	EnableCiliumNodeCRD bool `flag:"enable-ciliumnode-crd" usage:"Agents create CiliumNodes" hidden:"true"`

	// Release is the release of Cilium that the cluster is configured for.
	Release release.Release `flag:"-"`

	// Features of agents that decide which kinds a cluster needs.
	EnableEnvoyConfig     bool `flag:"enable-envoy-config" usage:"Agents use CiliumEnvoyConfigs" hidden:"true"`
	EnableBGPControlPlane bool `flag:"enable-bgp-control-plane" usage:"Agents run the BGP control plane" hidden:"true"`

	ClusterMeshEnableMCSAPI bool `flag:"clustermesh-enable-mcs-api" usage:"Enable the multi-cluster services API (MCS-API)"`
	// ClusterMeshDefaultGlobalNamespace is whether Namespaces without the annotation clustermesh.cilium.io/global are global.
	ClusterMeshDefaultGlobalNamespace bool `flag:"clustermesh-default-global-namespace" usage:"Namespaces without the annotation clustermesh.cilium.io/global are global: what is in them is exported to other clusters"`

	// ClusterMeshServiceV2 says which keys other clusters read the backends of Services from; see ExportsServices and ExportsSlices.
	ClusterMeshServiceV2 string `flag:"clustermesh-service-v2" usage:"Keys in the kvstore that have the backends of Services: of Services and, from 1.20 on, of EndpointSlices (prefer-legacy, prefer-endpointslice), or of EndpointSlices alone (only-endpointslice)" oneof:"prefer-legacy,prefer-endpointslice,only-endpointslice" hidden:"true"`

	// EnableNodePort is an option of agents: with it, they serve NodePort Services.
	EnableNodePort bool `flag:"enable-node-port" usage:"Agents serve NodePort Services" hidden:"true"`
	// EnableL2Announcements is an option of agents: with it, they announce Services of the class io.cilium/l2-announcer.
	EnableL2Announcements bool `flag:"enable-l2-announcements" usage:"Agents announce addresses of Services by ARP and NDP" hidden:"true"`
	// EnableNodeIPAM is as given; what holds is told by NodeIPAM.
	EnableNodeIPAM bool `flag:"enable-node-ipam" usage:"Assign addresses of nodes to LoadBalancer Services of the class io.cilium/node"`
	// DefaultLBServiceIPAM is the duty that assigns addresses to LoadBalancer Services without a class.
	DefaultLBServiceIPAM string `flag:"default-lb-service-ipam" usage:"What assigns addresses to LoadBalancer Services without a class: lbipam (pools), nodeipam (nodes) or none" oneof:"lbipam,nodeipam,none"`
	// K8sServiceProxyName selects the Services that duties look at; see ServiceSelector.
	K8sServiceProxyName string `flag:"k8s-service-proxy-name" usage:"Value of the label service.kubernetes.io/service-proxy-name of the Services to look at; empty for those without the label"`
}

// DefaultConfig holds the defaults of the flags.
var DefaultConfig = Config{
	ClusterName: "default", MaxConnectedClusters: 255,
	EnableIPv4: true, EnableIPv6: true,
	IPAM: "cluster-pool", IdentityAllocationMode: "kvstore",
	CESControllerMode: "default", IdentityManagementMode: "agent",
	EnablePolicy: "default", EnableK8sNetworkPolicy: true, EnableCiliumNetworkPolicy: true, EnableCiliumClusterwideNetworkPolicy: true,
	EnableCiliumNodeCRD:               true,
	ClusterMeshDefaultGlobalNamespace: true,
	ClusterMeshServiceV2:              preferServices,
	DefaultLBServiceIPAM:              LBIPAM,
}

var (
	validName  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	usableName = regexp.MustCompile(`^[-._A-Za-z0-9]+$`) // in a key of etcd, and in a label
)

const goodName = "at most 32 lower-case letters, digits and dashes"

// checkName validates the cluster's name. The original logs an invalid one and goes on, later releases exit.
func (c Config) checkName() error {
	switch {
	case !usableName.MatchString(c.ClusterName):
		return cell.Invalid("cluster-name", "must be %s", goodName)
	case len(c.ClusterName) > 32 || !validName.MatchString(c.ClusterName):
		return cell.Questionable("cluster-name", "should be %s: newer agents and releases of the original do not start with it", goodName)
	}
	return nil
}

// enforcement are the values of enable-policy.
var enforcement = []string{"default", "always", "never"}

// checkPolicy validates when policies are enforced. The original runs with any value.
func (c Config) checkPolicy() error {
	if !slices.Contains(enforcement, strings.ToLower(c.EnablePolicy)) {
		return cell.Questionable("enable-policy", "should be %s: agents do not start with it", strings.Join(enforcement, ", "))
	}
	return nil
}

// Derive sets the release.
func (c *Config) Derive(values *config.Values) { c.Release = release.Find(values).Release }

// Validate implements the check of config structs.
func (c Config) Validate() error { return errors.Join(c.checkName(), c.checkPolicy(), c.check()) }

func (c Config) check() error {
	switch {
	case c.ClusterID > c.MaxConnectedClusters:
		return cell.Invalid("cluster-id", "must be at most --max-connected-clusters (%d)", c.MaxConnectedClusters)
	case c.ClusterID != 0 && c.ClusterName == DefaultConfig.ClusterName:
		return cell.Invalid("cluster-name", "must be set where --cluster-id is: clusters of a mesh are told apart by both")
	case c.K8sNamespace != "" && len(validation.IsDNS1123Label(c.K8sNamespace)) > 0:
		return cell.Invalid("k8s-namespace", "%q is no namespace: those are at most 63 lower-case letters, digits and dashes", c.K8sNamespace)
	case c.KVStore != "" && c.KVStore != "etcd":
		return cell.Invalid("kvstore", "must be etcd, or empty for none")
	case c.OperatorIdentities() && c.IdentityMode() != "crd":
		return cell.Invalid("identity-management-mode", "the operator makes identities as objects only; set --identity-allocation-mode=crd, or leave identities to agents")
	case c.SlimEndpointSlices() && !c.IdentitiesInCRD():
		return cell.Invalid("ces-controller-mode", "slices are made of pods only where identities are objects; set --identity-allocation-mode=crd, or --ces-controller-mode=default")
	case len(validation.IsValidLabelValue(c.K8sServiceProxyName)) > 0:
		return cell.Invalid("k8s-service-proxy-name", "%q is no value of a label", c.K8sServiceProxyName)
	case !slices.Contains(ipamModes, c.IPAM):
		return cell.Invalid("ipam", "must be one of %v", ipamModes)
	case c.DisableEndpointCRD && c.EnableCiliumEndpointSlice && !c.slicesAlone():
		return cell.Invalid("enable-cilium-endpoint-slice", "slices are made of CiliumEndpoints, which --disable-endpoint-crd switches off; set --disable-endpoint-crd=false")
	}
	return nil
}

// IdentityMode returns the effective identity allocation mode, always crd without a
// kvstore.
func (c Config) IdentityMode() string {
	if c.KVStore == "" {
		return "crd"
	}
	return c.IdentityAllocationMode
}

// IdentitiesInCRD reports whether identities are CiliumIdentities, alone or also keys of the kvstore.
func (c Config) IdentitiesInCRD() bool { return c.IdentityMode() != "kvstore" }

// IdentitiesInKVStore reports whether identities are keys of the kvstore, alone or also CiliumIdentities.
func (c Config) IdentitiesInKVStore() bool { return c.IdentityMode() != "crd" }

// EndpointCRD reports whether agents create CiliumEndpoints. Without a kvstore they do, but for what their release allows.
func (c Config) EndpointCRD() bool {
	if !c.DisableEndpointCRD || c.KVStore != "" {
		return !c.DisableEndpointCRD
	}
	return !(release.EndpointsOffWithoutPolicies.In(c.Release) && c.PolicyOff() || c.EnableCiliumEndpointSlice && c.slicesAlone())
}

// slicesAlone reports whether there can be CiliumEndpointSlices without CiliumEndpoints.
func (c Config) slicesAlone() bool {
	return release.EndpointsOffWithSlices.In(c.Release) || c.SlimEndpointSlices()
}

// PolicyOff reports whether agents enforce no policy whatever: then all endpoints have one identity.
func (c Config) PolicyOff() bool {
	someKind := c.EnableK8sNetworkPolicy || c.EnableK8sClusterNetworkPolicy || c.EnableCiliumNetworkPolicy || c.EnableCiliumClusterwideNetworkPolicy
	endpoints := !c.DisableEndpointCRD || c.EnableCiliumEndpointSlice
	return strings.EqualFold(c.EnablePolicy, "never") && !someKind && !endpoints && c.IdentityAllocationMode == "crd"
}

// NodeCRD reports whether agents create CiliumNodes: they do without them only where another program allocates addresses, and
// identities are objects.
func (c Config) NodeCRD() bool {
	return c.EnableCiliumNodeCRD || c.IPAM != "delegated-plugin" || c.IdentityMode() != "crd"
}

// OperatorIdentities reports whether the operator creates CiliumIdentities.
func (c Config) OperatorIdentities() bool {
	return c.OperatorManagesIdentities || c.IdentityManagementMode != "agent"
}

// SlimEndpointSlices reports whether the source of slices is pods instead of
// CiliumEndpoints.
func (c Config) SlimEndpointSlices() bool {
	return c.EnableCiliumEndpointSlice && c.CESControllerMode == "slim"
}
