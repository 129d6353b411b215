// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/job"
)

// newOnce makes the job that deletes all endpoints, once. It watches nothing:
// where agents make no endpoints, there is nothing to watch.
func newOnce(client k8s.Client, s sweep.Deps, m *gcMetrics) (job.Job, error) {
	run, err := sweep.Once(s, client, sweep.Cleanup{
		Resource: endpoints, Kind: "CiliumEndpoint", Why: "agents make no endpoints",
		Propagation: metav1.DeletePropagationBackground, Deleted: m.countDelete,
	})
	return job.OneShot(run), err
}
