// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/job"
)

// newOnce makes the job that deletes all CiliumNodes, once, whatever owners and annotations they have. It watches nothing: where agents
// make none, there is nothing to watch.
func newOnce(client k8s.Client, s sweep.Deps) (job.Job, error) {
	run, err := sweep.Once(s, client, sweep.Cleanup{
		Resource: v2.CiliumNodeResource, Kind: "CiliumNode", Why: "agents make no CiliumNodes", Propagation: metav1.DeletePropagationBackground,
	})
	return job.OneShot(run), err
}
