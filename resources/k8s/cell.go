// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/runtime/cell"
)

// Cell connects to the Kubernetes API and gives every module a client.
var Cell = cell.Module("k8s", "Connects to the Kubernetes API, with one client for all writes",
	cell.Config(DefaultConfig),
	cell.EnabledBy(InUse),
	RBAC(
		AllowPath("get", "/healthz", "/version"),
		Allow("get", schema.GroupResource{Resource: "namespaces"}),
	),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(provideTransport, newRoleCheck),
	cell.Provide(newSession, newPermissions, newServer),
	cell.ProvidePerModule(newModuleClient, newHandover, newFence, newEvents),
	cell.Job("connect", newConnector),
	cell.Job("heartbeat", newHeartbeat),
	cell.Job("role", newRoleJob),

	cell.Annotate(rbacCommand),
)
