// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"context"
	"encoding/json"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/skep-operator/skep/resources/k8s"
)

// A leader that releases the lease writes into an annotation how far it wrote,
// so that its successor waits until its streams show that much, and need not
// read everything anew.
const writtenAnnotation = "skep.dev/written"

// testament is the value of the annotation. It holds only while the lease is as
// it was released: whoever takes it counts a transition.
type testament struct {
	Transitions int         `json:"transitions"`
	Written     k8s.Written `json:"written"`
}

// before is what leaders since this replica led last say was written, nil if
// there were none. seen is the lease that was taken.
func (e *elector) before(ctx context.Context, seen sighting) *k8s.Written {
	unknown := &k8s.Written{}
	switch {
	case !seen.exists:
		return unknown
	case seen.mine(e.me, e.led):
		return nil
	case seen.record.HolderIdentity != "":
		return unknown
	}
	ctx, cancel := context.WithTimeout(ctx, e.Config.requestTimeout())
	defer cancel()
	lease, err := e.leases.Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		return unknown
	}
	var t testament
	if json.Unmarshal([]byte(lease.Annotations[writtenAnnotation]), &t) != nil || t.Transitions != seen.record.LeaderTransitions {
		return unknown
	}
	return &t.Written
}

// giveAway releases the lease. The error is errLost if it was not ours.
func (e *elector) giveAway(ctx context.Context) error {
	lease, err := e.leases.Get(ctx, leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: it was deleted", errLost)
	}
	if err != nil {
		return err
	}
	if holder := lease.Spec.HolderIdentity; holder == nil || *holder != e.me {
		return fmt.Errorf("%w: somebody else holds it", errLost)
	}
	now := metav1.Now()
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&resourcelock.LeaderElectionRecord{
		LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now, LeaderTransitions: e.Status().Transitions,
	})
	if err := bequeath(lease, testament{e.Status().Transitions, e.Leading.Written()}); err != nil {
		return err
	}
	_, err = e.leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

func bequeath(lease *coordinationv1.Lease, t testament) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, writtenAnnotation, string(text))
	return nil
}
