// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/cidr"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// value is the value of a node's key, byte for byte as agents read it: no field is omitted, and what is empty is null.
type value struct {
	Name                    string
	Cluster                 string
	IPAddresses             []ipAddress
	IPv4AllocCIDR           *net.IPNet
	IPv4SecondaryAllocCIDRs []*net.IPNet
	IPv6AllocCIDR           *net.IPNet
	IPv6SecondaryAllocCIDRs []*net.IPNet
	IPv4HealthIP            net.IP
	IPv6HealthIP            net.IP
	IPv4IngressIP           net.IP
	IPv6IngressIP           net.IP
	ClusterID               uint32
	Source                  string
	EncryptionKey           uint8
	Labels                  map[string]string
	Annotations             map[string]string
	NodeIdentity            uint32
	WireguardPubKey         string
	BootID                  string
}

type ipAddress struct {
	Type string
	IP   net.IP
}

// source is the Source of keys that operators write. Agents write "local".
const source = "custom-resource"

// The annotation of a node's WireGuard key, and its old name.
const (
	publicKey    = "network.cilium.io/wg-pub-key"
	oldPublicKey = "io.cilium.network.wg-pub-key"
)

// encode returns the value of the key of a CiliumNode, and what it goes without since it would be larger than etcd takes. An error names
// what agents could not decode.
func encode(shared cluster.Config, n *node) (text []byte, leftOut string, err error) {
	switch {
	case n.DecodeError() != nil:
		return nil, "", fmt.Errorf("the key of CiliumNode %s is not written: %w", n.Name, n.DecodeError())
	case n.Spec.Encryption.Key < 0 || n.Spec.Encryption.Key > math.MaxUint8:
		return nil, "", fmt.Errorf("the key of CiliumNode %s is not written: spec.encryption.key is %d, agents read 0 to %d", n.Name, n.Spec.Encryption.Key, math.MaxUint8)
	case n.Spec.NodeIdentity < 0 || n.Spec.NodeIdentity > math.MaxUint32:
		return nil, "", fmt.Errorf("the key of CiliumNode %s is not written: spec.nodeidentity is %d, agents read 0 to %d", n.Name, n.Spec.NodeIdentity, uint32(math.MaxUint32))
	}
	v := value{
		Name: n.Name, Cluster: shared.ClusterName, ClusterID: shared.ClusterID, Source: source,
		IPv4HealthIP: hostIP(n.Spec.Health.IPv4), IPv6HealthIP: hostIP(n.Spec.Health.IPv6),
		IPv4IngressIP: hostIP(n.Spec.Ingress.IPv4), IPv6IngressIP: hostIP(n.Spec.Ingress.IPv6),
		EncryptionKey: uint8(n.Spec.Encryption.Key), NodeIdentity: uint32(n.Spec.NodeIdentity), BootID: n.Spec.BootID,
		Labels: n.Labels.Map(), Annotations: n.Annotations.Map(), WireguardPubKey: wireguardKey(n),
	}
	for _, a := range n.Spec.Addresses {
		if ip := a.parse(); ip != nil {
			v.IPAddresses = append(v.IPAddresses, ipAddress{a.Type.String(), ip})
		}
	}
	v.addCIDRs(n.Spec.IPAM.PodCIDRs)
	for _, pool := range n.Spec.IPAM.Pools.Allocated {
		v.addCIDRs(pool.CIDRs)
	}
	cut := ""
	if n.Spec.isCut {
		cut = fmt.Sprintf("without addresses after the first %d, and CIDRs after the first %d; ", maxAddresses, ciliumio.MaxCIDRs)
	}
	if text, err = json.Marshal(v); err != nil || len(text) <= kvstore.MaxValue {
		return text, strings.TrimSuffix(cut, "; "), err
	}
	v.Annotations = nil // a character of them may have six bytes as JSON
	if text, err = json.Marshal(v); err != nil || len(text) <= kvstore.MaxValue {
		return text, cut + "without annotations", err
	}
	v.Labels = nil
	text, err = json.Marshal(v)
	return text, cut + "without annotations and labels", err
}

// addCIDRs sets the CIDR of each family, or adds to those that follow it.
func (v *value) addCIDRs(texts []string) {
	for _, text := range texts {
		_, network, err := net.ParseCIDR(text)
		if c, ok := cidr.Parse(text); err != nil || !ok || !ofPods(c) {
			continue
		}
		first, more := &v.IPv6AllocCIDR, &v.IPv6SecondaryAllocCIDRs
		if network.IP.To4() != nil {
			first, more = &v.IPv4AllocCIDR, &v.IPv4SecondaryAllocCIDRs
		}
		if *first == nil {
			*first = network
		} else {
			*more = append(*more, network)
		}
	}
}

// ofPods reports whether a CIDR can be one of a node's pods. Agents of other clusters send what goes to a CIDR to the node that has it.
// How large the options of IPAM have those of nodes is not known here: up to a /8, and for IPv6 a /32.
func ofPods(c netip.Prefix) bool {
	least := 32
	if c.Addr().Is4() {
		least = 8
	}
	return c.Addr().IsGlobalUnicast() && c.Bits() >= least
}

// parse returns an address of a node, nil for one that no node has. Agents may be configured with a link-local one for themselves.
func (a address) parse() net.IP {
	if ip := net.ParseIP(a.IP); a.Type.String() == "CiliumInternalIP" && ip.IsLinkLocalUnicast() {
		return ip
	}
	return hostIP(a.IP)
}

// hostIP parses an address at which other machines can reach something, nil for one that is none.
func hostIP(text string) net.IP {
	if _, ok := cidr.ParseHost(text); !ok {
		return nil
	}
	return net.ParseIP(text)
}

func wireguardKey(n *node) string {
	name := publicKey
	if !n.Annotations.Has(name) {
		name = oldPublicKey
	}
	return n.Annotations.Get(name)
}
