// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"slices"
	"strings"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/operatortest"
)

// CIPAM-46, CIPAM-50, CIPAM-51, AWS-32; numbers 4.4 and 4.5 of the contract's tenants.md: what EC2 shows of several instances, and what is
// no address of a pod, is in no status, from which agents of 1.20 get theirs, and in no pool, and is reported. It counts against the
// limits of the instance. The primary addresses are there.
func TestServerWhatIsLeftOut(t *testing.T) {
	s := newServer(t)
	s.ec2.AddIPv6("subnet-a", "2001:db8:0:a::/64")
	nodes := []string{"a", "b", "c"}
	for _, name := range nodes {
		s.machine("i-"+name, "m5.large", "subnet-a")
	}
	primaries := map[string]string{}
	wrong := []string{"10.1.0.200", "169.254.169.10", "0.0.0.0", "127.0.0.1", "10.2.0.9", "10.1.0.64/28", "2001:db8:0:a:9::/80", "fe80::/80", "2001:db8:0:b::/80"}
	for _, i := range s.ec2.Interfaces() {
		primaries[i.Instance] = i.Primary
		s.ec2.ShowAddress(i.ID, wrong...)
	}
	for _, i := range s.ec2.Interfaces() {
		if i.Instance == "i-c" {
			s.ec2.ShowAddress(i.ID, append(slices.Clone(wrong), primaries["i-a"])...)
		}
	}
	for _, name := range nodes {
		s.create(name, "i-"+name, "m5.large", func(n *v2.CiliumNode) {
			n.Spec.IPAM.Pools.Requested = []v2.IPAMPoolRequest{{Pool: "default", Needed: v2.IPAMPoolDemand{IPv4Addrs: 8}}}
		})
	}
	o := s.start()
	for _, name := range nodes {
		s.wantPool(name, 8)
		n, shown := s.nodes.Read(name), 0
		for _, e := range n.Status.ENI.ENIs {
			shown += len(e.Addresses)
			for _, a := range e.Addresses {
				if _, has := n.Spec.IPAM.Pool[a]; !has || s.ec2.Owners()[a] != "i-"+name {
					t.Errorf("%s: %s of the status is in the pool: %t, and of %s", name, a, has, s.ec2.Owners()[a])
				}
			}
			if len(e.Prefixes)+len(e.IPv6Prefixes) != 0 || e.Number == 0 && e.IP != primaries["i-"+name] {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if shown != 8 || len(n.Status.ENI.ENIs) != 2 { // six of the nine slots of the first interface are occupied
			t.Errorf("%s: %d addresses on %d interfaces", name, shown, len(n.Status.ENI.ENIs))
		}
	}
	for _, text := range []string{"EC2 shows what is no address as one of 3 interfaces", "the cloud shows addresses that no pod can have for 3 CiliumNodes, a among them", "10.1.0.200 (of several instances)"} {
		operatortest.Eventually(t, text, func() bool { return strings.Contains(o.Degraded("ipam.aws"), text) })
	}
}
