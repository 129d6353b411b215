// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/job"
)

// newExports writes the synced marker of service exports, of which there are none: readers wait for it. Those of an
// operator that made some are deleted.
func newExports(client kvstore.Client, s reconcile.Deps, shared cluster.Config) (job.Job, error) {
	keys, err := kvstore.NewSyncStore(client, s, kvstore.ServiceExportsPrefix, shared.ClusterName)
	if err != nil {
		return job.Job{}, err
	}
	keys.Synced()
	return job.OneShot(keys.Run), nil
}
