// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package taints

import "github.com/skep-operator/skep/runtime/cell"

// Config is what is done to nodes.
type Config struct {
	RemoveCiliumNodeTaints bool `flag:"remove-cilium-node-taints" usage:"Remove the taint --agent-not-ready-taint-key of nodes whose agent is ready"`
	SetCiliumNodeTaints    bool `flag:"set-cilium-node-taints" usage:"Set the taint on nodes whose agent is scheduled and not ready"`
	SetCiliumIsUpCondition bool `flag:"set-cilium-is-up-condition" usage:"Set the condition NetworkUnavailable to False, with the reason CiliumIsUp, on nodes whose agent is ready"`
	TaintSyncWorkers       int  `flag:"taint-sync-workers" usage:"Number of nodes whose taints and conditions are written at once" min:"1" max:"1000"`
}

func (c Config) enabled() bool { return c.RemoveCiliumNodeTaints || c.SetCiliumIsUpCondition }

// taints reports whether taints are changed.
func (c Config) taints() bool { return c.RemoveCiliumNodeTaints || c.SetCiliumNodeTaints }

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.SetCiliumNodeTaints && !c.enabled() {
		return cell.Questionable("set-cilium-node-taints", "has no effect without --remove-cilium-node-taints or --set-cilium-is-up-condition")
	}
	return nil
}
