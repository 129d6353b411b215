// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"net/http"
	"strings"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam/ecstest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// K6 of the contract's tenants.md, for Alibaba Cloud: neither errors, ids, zones, tags nor addresses that it shows control what they are shown with.
func TestTextsOfAlibabaCloud(t *testing.T) {
	const hostile = printabletest.Hostile
	c := region("ecs.large")
	c.AddVSwitch("vsw-"+hostile, ecstest.VPC, hostile, "10.1.1.0/24", map[string]string{hostile: hostile})
	c.Fault = func(operation string, _ map[string]string) (f ecstest.Fault) {
		if operation == "AttachNetworkInterface" {
			f.Status, f.Code, f.Message = http.StatusForbidden, hostile, hostile
		}
		return f
	}
	s := newServer(t, c)
	s.run("a", "ecs.large", nil)
	s.run("b", "ecs.large", func(n *v2.CiliumNode) { n.Spec.AlibabaCloud.VSwitchTags = map[string]string{hostile: hostile} })
	for _, i := range c.Interfaces() {
		c.Garble(i.ID, hostile)
	}
	o := s.launch(operatortest.TextLog)
	shown := ""
	operatortest.Eventually(t, "all is reported", func() bool {
		shown = s.nodes.Read("a").Status.IPAM.OperatorStatus.Error
		return strings.Contains(o.Degraded("ipam.alibabacloud.nodes"), printabletest.Forged) && strings.Contains(shown, printabletest.Forged) &&
			strings.Contains(o.Degraded("ipam.alibabacloud.addresses"), printabletest.Forged)
	})
	o.CheckPrintable()
	printabletest.CheckLine(t, "the error in the status of a", shown)
	printabletest.CheckLine(t, "the error in the status of b", s.nodes.Read("b").Status.IPAM.OperatorStatus.Error)
}
