// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Cell has the options of SPIRE. In a term in which a duty registers entries it connects to the server, and provides each
// module with [Deps].
var Cell = cell.Module("spire", "Has the options of SPIRE, which say where it is and what is registered there",
	cell.Config(DefaultConfig),
	cell.Module("connection", "Connects to the SPIRE server, once for all duties that register entries",
		cell.EnabledBy(cell.When("a duty registers entries with SPIRE", slices.Concat(identityFlags, ztunnelFlags), Config.inUse)),
		k8s.RBAC(k8s.Allow("get", services.GroupResource())),

		cell.Metrics(newMetrics),
		cell.Metrics(outside.NewAPIMetrics("spire")),
		cell.ProvidePrivate(NewConnection),
		cell.ProvidePerModule(newDeps),
		cell.Hook("connection", newCloser),
		cell.Job("workload", (*Connection).Run, cell.Retry(firstPause, longestPause)),
	),
)

var services = corev1.SchemeGroupVersion.WithResource("services")

// The conditions of the duties that register entries.
var (
	// Identities holds if identities are registered.
	Identities = cell.When("agents authenticate peers by SPIRE", identityFlags, Config.registersIdentities)
	// ServiceAccounts holds if service accounts are registered.
	ServiceAccounts = cell.When("ztunnel gets its certificates from SPIRE", ztunnelFlags, Config.registersServiceAccounts)
)

var (
	identityFlags = []string{"mesh-auth-enabled", "mesh-auth-mutual-enabled"}
	ztunnelFlags  = []string{"enable-ztunnel", caTypeFlag}
)

// The pauses between attempts to connect.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

// newCloser closes the connection when those that use it have stopped.
func newCloser(c *Connection) lifecycle.Hook {
	return lifecycle.Funcs{OnStop: func(context.Context) error { c.Close(); return nil }}
}
