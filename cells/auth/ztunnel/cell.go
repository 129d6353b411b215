// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ztunnel

import (
	"time"

	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell registers service accounts with SPIRE.
var Cell = cell.Module("auth.ztunnel", "Registers the service accounts of enrolled namespaces with SPIRE, so that ztunnel gets their certificates",
	cell.EnabledBy(spire.ServiceAccounts),
	namespaces.Permissions(),
	serviceAccounts.Permissions(),
	stream.Provide(namespaces),
	stream.Provide(serviceAccounts),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newController),
	cell.Job("register", (*controller).run, cell.Retry(time.Second, time.Minute)),
	cell.Job("namespaces", (*controller).watchNamespaces),
	cell.Job("serviceaccounts", (*controller).watchServiceAccounts),
)
