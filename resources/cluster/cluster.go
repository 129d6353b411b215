// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"regexp"
	"slices"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
)

// Config is the options shared by duties. See docs/wire/operator-shell.md.
type Config struct {
	ClusterName          string
	ClusterID            uint32
	MaxConnectedClusters uint32

	// K8sNamespace is where the operator's own objects live; "" when unset.
	K8sNamespace string

	EnableIPv4 bool `flag:"enable-ipv4"`
	EnableIPv6 bool `flag:"enable-ipv6"`

	// IPAM is the mode in which pods get addresses.
	IPAM string

	// KVStore is "etcd", or "" where there is none.
	KVStore string `flag:"kvstore"`

	// DisableEndpointCRD and IdentityAllocationMode are as given; what holds is
	// told by EndpointCRD and IdentityMode.
	DisableEndpointCRD        bool `flag:"disable-endpoint-crd"`
	IdentityAllocationMode    string
	EnableCiliumEndpointSlice bool

	// CESControllerMode says what slices are made of; see SlimEndpointSlices.
	CESControllerMode string `flag:"ces-controller-mode"`
	// IdentityManagementMode and the older OperatorManagesIdentities say who makes
	// identities; what holds is told by OperatorIdentities.
	IdentityManagementMode    string
	OperatorManagesIdentities bool

	// Features of agents that decide which kinds a cluster needs.
	EnableEnvoyConfig     bool
	EnableBGPControlPlane bool `flag:"enable-bgp-control-plane"`
}

// DefaultConfig is what the flags default to.
var DefaultConfig = Config{
	ClusterName: "default", MaxConnectedClusters: 255,
	EnableIPv4: true, EnableIPv6: true,
	IPAM: "cluster-pool", IdentityAllocationMode: "kvstore",
	CESControllerMode: "default", IdentityManagementMode: "agent",
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.String("cluster-name", c.ClusterName, "Name of the cluster")
	fs.Uint32("cluster-id", c.ClusterID, "Number of the cluster in its mesh")
	fs.Uint32("max-connected-clusters", c.MaxConnectedClusters, "How many clusters a mesh may have: 255 or 511")
	fs.String("k8s-namespace", c.K8sNamespace, "Namespace that the operator runs in")
	fs.Bool("enable-ipv4", c.EnableIPv4, "Pods have IPv4 addresses")
	fs.Bool("enable-ipv6", c.EnableIPv6, "Pods have IPv6 addresses")
	fs.String("ipam", c.IPAM, "Where pods get their addresses from")
	fs.String("kvstore", c.KVStore, "Kind of key-value store: etcd, or empty for none")
	fs.Bool("disable-endpoint-crd", c.DisableEndpointCRD, "Agents make no CiliumEndpoints")
	fs.String("identity-allocation-mode", c.IdentityAllocationMode, "Where identities are kept: kvstore, crd, doublewrite-readkvstore or doublewrite-readcrd")
	fs.Bool("enable-cilium-endpoint-slice", c.EnableCiliumEndpointSlice, "Gather CiliumEndpoints in CiliumEndpointSlices")
	fs.String("ces-controller-mode", c.CESControllerMode, "What CiliumEndpointSlices are made of: default for CiliumEndpoints, slim for pods")
	fs.String("identity-management-mode", c.IdentityManagementMode, "Who makes CiliumIdentities: agent, operator, or both while the cluster moves from one to the other")
	fs.Bool("operator-manages-identities", c.OperatorManagesIdentities, "The operator makes CiliumIdentities: the older form of --identity-management-mode=operator")
	fs.Bool("enable-envoy-config", c.EnableEnvoyConfig, "Agents take CiliumEnvoyConfigs")
	fs.Bool("enable-bgp-control-plane", c.EnableBGPControlPlane, "Agents speak BGP")
	for _, agents := range []string{"disable-endpoint-crd", "enable-envoy-config", "enable-bgp-control-plane"} {
		_ = fs.MarkHidden(agents) // options of agents that the operator follows
	}
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// Validate implements the check of config structs.
func (c Config) Validate() error {
	switch {
	case len(c.ClusterName) > 32 || !validName.MatchString(c.ClusterName):
		return cell.Invalid("cluster-name", "must be at most 32 lower-case letters, digits and dashes")
	case c.MaxConnectedClusters != 255 && c.MaxConnectedClusters != 511:
		return cell.Invalid("max-connected-clusters", "must be 255 or 511")
	case c.ClusterID > c.MaxConnectedClusters:
		return cell.Invalid("cluster-id", "must be at most --max-connected-clusters (%d)", c.MaxConnectedClusters)
	case c.ClusterID != 0 && c.ClusterName == DefaultConfig.ClusterName:
		return cell.Invalid("cluster-name", "must be set where --cluster-id is: clusters of a mesh are told apart by both")
	case c.KVStore != "" && c.KVStore != "etcd":
		return cell.Invalid("kvstore", "must be etcd, or empty for none")
	case !slices.Contains(identityModes, c.IdentityAllocationMode):
		return cell.Invalid("identity-allocation-mode", "must be kvstore, crd, doublewrite-readkvstore or doublewrite-readcrd")
	case !slices.Contains(managementModes, c.IdentityManagementMode):
		return cell.Invalid("identity-management-mode", "must be agent, operator or both")
	case c.OperatorIdentities() && c.IdentityMode() != "crd":
		return cell.Invalid("identity-management-mode", "the operator makes identities as objects only; set --identity-allocation-mode=crd, or leave identities to agents")
	case c.CESControllerMode != "default" && c.CESControllerMode != "slim":
		return cell.Invalid("ces-controller-mode", "must be default or slim")
	case c.SlimEndpointSlices() && !c.OperatorIdentities():
		return cell.Invalid("ces-controller-mode", "slices are made of pods only where the operator knows their identities; set --identity-management-mode=operator or both")
	case !slices.Contains(ipamModes, c.IPAM):
		return cell.Invalid("ipam", "must be one of %v", ipamModes)
	case c.DisableEndpointCRD && c.EnableCiliumEndpointSlice && !c.SlimEndpointSlices():
		return cell.Invalid("enable-cilium-endpoint-slice", "slices are made of CiliumEndpoints, which --disable-endpoint-crd switches off; set --disable-endpoint-crd=false")
	}
	return nil
}

var managementModes = []string{"agent", "operator", "both"}

var identityModes = []string{"kvstore", "crd", "doublewrite-readkvstore", "doublewrite-readcrd"}

// IdentityMode is where identities are kept. Without a kvstore they can only be
// objects.
func (c Config) IdentityMode() string {
	if c.KVStore == "" {
		return "crd"
	}
	return c.IdentityAllocationMode
}

// EndpointCRD reports whether agents make CiliumEndpoints. Without a kvstore
// they have no other place to tell about their endpoints.
func (c Config) EndpointCRD() bool { return c.KVStore == "" || !c.DisableEndpointCRD }

// OperatorIdentities reports whether the operator makes identities.
func (c Config) OperatorIdentities() bool {
	return c.OperatorManagesIdentities || c.IdentityManagementMode != "agent"
}

// SlimEndpointSlices reports whether slices are made of pods, and not of
// CiliumEndpoints.
func (c Config) SlimEndpointSlices() bool {
	return c.EnableCiliumEndpointSlice && c.CESControllerMode == "slim"
}
