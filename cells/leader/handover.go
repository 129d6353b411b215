// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/leading"
)

// writtenAnnotation is the annotation with the write progress of a leader that released the lease. Its successor waits
// until its streams have reached that, and does not read everything again.
const writtenAnnotation = "skep.dev/written"

// release is the value of the annotation. A lease with it and without a holder is acquired at once: its holder had no
// writes in flight. It is void after any later write of the lease.
type release struct {
	Transitions int32                 `json:"transitions"`
	Released    metav1.MicroTime      `json:"released"` // the renewTime of the lease
	Written     leading.WriteProgress `json:"written"`
}

// releaseOf returns the release of a lease, nil if it was not released.
func releaseOf(lease *coordinationv1.Lease) *release {
	spec := lease.Spec
	if ptr.Deref(spec.HolderIdentity, "") != "" || spec.RenewTime == nil {
		return nil
	}
	var r release
	if json.Unmarshal([]byte(lease.Annotations[writtenAnnotation]), &r) != nil {
		return nil
	}
	if r.Transitions != ptr.Deref(spec.LeaseTransitions, -1) || !r.Released.Equal(spec.RenewTime) {
		return nil
	}
	return &r
}

// releaseLease changes a lease to a released one, as client-go does, with the annotation.
func releaseLease(lease *coordinationv1.Lease, written leading.WriteProgress) error {
	now := microNow()
	text, err := json.Marshal(release{*lease.Spec.LeaseTransitions, now, written})
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, writtenAnnotation, string(text))
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(""), LeaseDurationSeconds: ptr.To[int32](1),
		AcquireTime: &now, RenewTime: &now, LeaseTransitions: lease.Spec.LeaseTransitions,
	}
	return nil
}

// predecessorProgress is the write progress of leaders since this replica led last, nil if there were none. s is the lease
// that was acquired.
func (s observedLease) predecessorProgress(last *coordinationv1.LeaseSpec) *leading.WriteProgress {
	switch {
	case s.isUninterrupted(last):
		return nil
	case s.release != nil:
		return &s.release.Written
	}
	return &leading.WriteProgress{}
}
