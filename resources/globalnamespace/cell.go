// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package globalnamespace

import (
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell reports Namespaces whose annotation is invalid, where a duty reads it.
var Cell = cell.Module("globalnamespace", "Reports Namespaces whose annotation "+Annotation+" is neither true nor false",
	cell.EnabledBy(cell.When("Services or ServiceExports are exported", []string{"kvstore", "synchronize-k8s-services", "clustermesh-enable-mcs-api"},
		func(shared cluster.Config, c kvstore.Config) bool {
			return shared.ClusterMeshEnableMCSAPI || shared.KVStore != "" && c.SynchronizeK8sServices
		})),
	stream.Namespaces.Permissions(),
	k8s.EventRBAC(),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newReporter),
	cell.Job("watch-namespaces", (*reporter).watch, cell.Retry(time.Second, time.Minute)),
)
