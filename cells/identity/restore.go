// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// errReplaced is returned for another object than the one whose labels were edited.
var errReplaced = errors.New("it was recreated")

// restore restores the original labels of an identity. It is the only write of security-labels of an existing object.
func (c *controller) restore(ctx context.Context, o object, of slim.Labels) error {
	ref := refOf(o.number)
	if c.Permissions.Denies("update", ref) {
		c.updateAndEnqueue(func(t *table) { t.recordRestoreFailure(of) })
		return fmt.Errorf("security-labels of identity %s were edited to {%s}, and the role lacks update on ciliumidentities.cilium.io to restore {%s}", o.number, o.labels, of)
	}
	stored, written, err := c.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error { return restoreLabels(u, o, of) })
	switch {
	case k8s.IsNotFound(err, ref):
		c.updateAndEnqueue(func(t *table) { t.recordVanished(of, o) })
		return nil
	case errors.Is(err, errReplaced):
		c.updateAndEnqueue(func(t *table) { t.recordRestoreFailure(of) })
		return reconcile.Recheck()
	}
	var now observation
	if err == nil {
		now, err = parse(stored, o.number)
	}
	if err != nil {
		c.updateAndEnqueue(func(t *table) { t.recordRestoreFailure(of) })
		return fmt.Errorf("restoring security-labels of identity %s, which were edited to {%s}: %w", o.number, o.labels, err)
	}
	c.updateAndEnqueue(func(t *table) { t.recordRestore(of, now) })
	switch {
	case now.labels != of:
		return fmt.Errorf("security-labels of identity %s are stored as {%s} when {%s} is sent: a webhook or policy of the API server changes them, or another writer does", o.number, now.labels, of)
	case written:
		c.reportRestored(o, of)
	}
	return nil
}

// restoreLabels edits an identity so that it has its original labels. Its metadata.labels stay as they are: they are for people.
func restoreLabels(u *unstructured.Unstructured, o object, of slim.Labels) error {
	if u.GetUID() != o.uid.API() {
		return errReplaced
	}
	has, _, err := unstructured.NestedStringMap(u.Object, "security-labels")
	if err == nil && slim.MakeLabels(has) == of {
		return nil
	}
	return unstructured.SetNestedStringMap(u.Object, of.Map(), "security-labels")
}

// reportRestored logs a reverted edit, and records an Event.
func (c *controller) reportRestored(o object, of slim.Labels) {
	text := fmt.Sprintf("security-labels were changed to {%s}, restored to {%s}", o.labels, of)
	if c.throttle.shouldLog("restored "+o.number.String(), time.Now()) {
		c.Log.Warn("restored changed security-labels of an identity", "identity", o.number.String(), "changed", o.labels.String(), "restored", of.String())
	}
	c.Events.Warning(corev1.ObjectReference{
		APIVersion: v2.SchemeGroupVersion.String(), Kind: "CiliumIdentity", Name: o.number.String(), UID: o.uid.API(),
	}, "SecurityLabelsRestored", text)
}
