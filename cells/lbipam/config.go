// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"cmp"
	"slices"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
)

// Config says which Services get addresses.
type Config struct {
	EnableLBIPAM         bool `flag:"enable-lb-ipam" usage:"Allocate addresses of CiliumLoadBalancerIPPools to LoadBalancer Services"`
	BPFLBProtoDiff       bool `flag:"bpf-lb-proto-diff" usage:"Agents up to 1.18 tell ports of one number apart by their protocol" hidden:"true"`
	LBIPAMMaxRequested   int  `flag:"lbipam-max-requested-ips" usage:"How many addresses of a family a Service may name in its annotation; 0 for 500, which are the most" min:"0"`
	LBIPAMRequireLBClass bool `flag:"lbipam-require-lb-class" usage:"Allocate addresses only to LoadBalancer Services that have a class"`
}

const (
	classBGP = "io.cilium/bgp-control-plane"
	classL2  = "io.cilium/l2-announcer"
)

const typeLoadBalancer = "LoadBalancer"

// settings are what the options say.
type settings struct {
	classes    []string // "" for Services without one
	ipv4, ipv6 bool
	// numbersOnly says that agents tell ports apart by their numbers alone.
	numbersOnly bool
	nodes       bool // whether the class of addresses of nodes is served, elsewhere
	most        int  // addresses of a family that a Service may name
}

func newSettings(c Config, shared cluster.Config) settings {
	s := settings{
		ipv4: shared.EnableIPv4, ipv6: shared.EnableIPv6, most: min(cmp.Or(c.LBIPAMMaxRequested, mostRequested), mostRequested), nodes: shared.EnableNodeIPAM,
		numbersOnly: !release.PortsByProtocol.In(shared.Release) && !c.BPFLBProtoDiff,
	}
	if !c.LBIPAMRequireLBClass && shared.DefaultLBServiceIPAM == cluster.LBIPAM {
		s.classes = append(s.classes, "")
	}
	if shared.EnableBGPControlPlane {
		s.classes = append(s.classes, classBGP)
	}
	if shared.EnableL2Announcements {
		s.classes = append(s.classes, classL2)
	}
	return s
}

// serves reports whether a Service gets its addresses here.
func (s settings) serves(o *serviceObject) bool {
	return o.isLoadBalancer() && slices.Contains(s.classes, o.Spec.LoadBalancerClass.String())
}
