// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package taints

import (
	"testing"

	"github.com/skep-operator/skep/resources/operatortest"
)

// A dry run plans both patches, and the operator sees them as done.
func TestDryRun(t *testing.T) {
	w := newWorld(t)
	w.node("removed", taint(agentKey, noSchedule))
	w.agent("removed", "removed", true)
	w.node("set")
	w.agent("set", "set", false)
	o := w.start(w.Kubeconfig(), "--set-cilium-node-taints=true", "--plan")
	operatortest.Eventually(t, "all is planned", func() bool {
		return o.Metric("node_taint_sync_total", "remove", "success") == 1 && o.Metric("node_taint_sync_total", "set", "success") == 1 &&
			o.Metric("node_taint_sync_total", "condition", "success") == 1
	})
	o.Stop()
	w.patched("removed")
	w.patched("set")
	if d := o.Degraded(""); d != "" {
		t.Errorf("it is degraded: %s", d)
	}
}
