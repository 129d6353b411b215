// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"strings"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// K6 of the contract's tenants.md, for AWS: neither errors, ids, zones, tags nor addresses that EC2 shows control what they are shown with. XML has no
// ESC, but all else.
func TestTextsOfEC2(t *testing.T) {
	const hostile = printabletest.Hostile
	s := newServer(t)
	s.ec2.AddVPC(hostile, "10.9.0.0/16")
	s.ec2.AddSubnet("subnet-"+hostile, "vpc-1", hostile, "10.4.0.0/24", map[string]string{hostile: hostile})
	s.ec2.AddGroup("sg-"+hostile, "vpc-1", map[string]string{hostile: hostile})
	s.ec2.Fault = func(operation string, _ map[string]string) (f ec2test.Fault) {
		if operation == "AssignPrivateIpAddresses" || operation == "CreateNetworkInterface" {
			f.Refuse = &ec2test.Error{Code: hostile, Message: hostile}
		}
		return f
	}
	s.machine("i-1", "m5.large", "subnet-a")
	for _, i := range s.ec2.Interfaces() {
		s.ec2.ShowAddress(i.ID, hostile, hostile+"/28")
	}
	s.create("a", "i-1", "m5.large", func(n *v2.CiliumNode) { n.Spec.IPAM.MinAllocate = 4 })
	s.machine("i-2", "m5.large", "subnet-a")
	s.create("b", "i-2", "m5.large", func(n *v2.CiliumNode) { n.Spec.ENI.SubnetTags = map[string]string{hostile: hostile} })
	o := s.startUnready(operatortest.TextLog, "--limit-ipam-api-qps=1000", "--limit-ipam-api-burst=1000")
	shown := ""
	operatortest.Eventually(t, "all is reported", func() bool {
		shown = s.nodes.Read("a").Status.IPAM.OperatorStatus.Error + s.nodes.Read("b").Status.IPAM.OperatorStatus.Error
		return strings.Contains(o.Degraded("ipam.aws.nodes"), "2 CiliumNodes") && strings.Contains(o.Degraded("ipam.aws.interfaces"), printabletest.Forged) && strings.Contains(shown, printabletest.Forged)
	})
	o.CheckPrintable()
	printabletest.CheckContains(t, "the errors in the statuses", shown)
	printabletest.CheckLine(t, "the error in the status of a", s.nodes.Read("a").Status.IPAM.OperatorStatus.Error)
}
