// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/domain/labels"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// writers is how many identities are created at once.
const writers = 64

// reconcile creates the object of a label set, or restores its labels.
func (c *controller) reconcile(ctx context.Context, of slim.Labels) error {
	if !c.Config.OperatorIdentities() {
		explain.SetReason(ctx, madeByAgents)
		return nil
	}
	started := time.Now()
	var todo action
	var pause time.Duration
	c.updateAndEnqueue(func(t *table) {
		if todo = t.nextAction(of); todo.number == 0 || todo.edited != nil {
			return // only creations are throttled
		}
		if pause = c.throttle.pause(t.now); pause > 0 {
			t.postpone(of, todo)
		}
	})
	switch {
	case pause > 0:
		explain.SetReason(ctx, createForbidden)
		return reconcile.RequeueAfter(pause)
	case todo.pause > 0:
		explain.SetReason(ctx, todo.reason)
		return reconcile.RequeueAfter(todo.pause)
	case todo.number == 0:
		c.Metrics.recordReconcile(todo.waited, time.Since(started), todo.reason != noneFree)
		explain.SetReason(ctx, todo.reason)
		if todo.reason == noneFree {
			c.reportExhausted()
		}
		return nil
	}
	var err error
	if todo.edited != nil {
		err = c.restore(ctx, *todo.edited, of)
	} else {
		err = c.create(ctx, todo, of)
	}
	c.Metrics.recordReconcile(todo.waited, time.Since(started), err == nil)
	return err
}

// updateAndEnqueue runs f on the table and enqueues the sets that it affects, without a trigger.
func (c *controller) updateAndEnqueue(f func(*table)) {
	for _, s := range c.update(f) {
		c.enqueue(s.labels)
	}
}

// create creates the object with a number. If one exists, it is read: the response to an earlier request may be lost.
func (c *controller) create(ctx context.Context, todo action, of slim.Labels) error {
	started, number, ref := time.Now(), todo.number, refOf(todo.number)
	has, err := c.Client.Create(ctx, v2.CiliumIdentityResource, encode(number, of))
	c.Metrics.recordCreate(todo.waited, time.Since(started), err == nil)
	var changed *k8s.NotStoredError
	if errors.As(err, &changed) { // admission of the API server has changed its labels
		err = nil
	}
	c.reportForbidden(of, ref, err)
	created := err == nil
	if k8s.IsAlreadyExists(err, ref) {
		has, err = c.Client.Get(ctx, ref)
		if err != nil {
			err = fmt.Errorf("identity %s exists, and its labels are not known: %w", number, err)
		}
	}
	if err != nil {
		c.updateAndEnqueue(func(t *table) { t.recordCreateFailure(of) })
		if isForbidden(err) {
			return reconcile.RequeueAfter(forbiddenPause)
		}
		return err
	}
	now, err := parse(has, number)
	if err != nil {
		c.updateAndEnqueue(func(t *table) { t.recordCreateFailure(of) })
		return err
	}
	var collisions int
	c.updateAndEnqueue(func(t *table) {
		s := t.sets[of]
		t.recordCreate(of, now, created)
		collisions = s.collisions
	})
	if now.labels != of {
		explain.SetReason(ctx, fmt.Sprintf("identity %s exists with other labels", number))
	}
	if collisions >= maxCollisions {
		return fmt.Errorf("identity %s exists with other labels, and so did those of %d numbers before: either other writers take numbers before the cache has them, or a webhook or policy of the API server changes security-labels", number, collisions-1)
	}
	return nil
}

func refOf(n identity.Number) k8s.Ref {
	return k8s.Ref{Resource: v2.CiliumIdentityResource, Name: n.String()}
}

// maxCollisions is how many numbers in a row may exist with other labels before further ones are tried with back-off.
const maxCollisions = 3

// encode is the object of a number.
func encode(number identity.Number, of slim.Labels) *v2.CiliumIdentity {
	set := labels.Set(of.Map())
	return &v2.CiliumIdentity{
		TypeMeta:       metav1.TypeMeta{APIVersion: v2.SchemeGroupVersion.String(), Kind: "CiliumIdentity"},
		ObjectMeta:     metav1.ObjectMeta{Name: number.String(), Labels: set.Metadata()},
		SecurityLabels: set,
	}
}

// parse decodes the fields of an object that the table keeps.
func parse(u *unstructured.Unstructured, number identity.Number) (now observation, err error) {
	if u.GetName() != number.String() {
		return now, fmt.Errorf("asked for identity %s, the answer is %q", number, u.GetName())
	}
	all, _, err := unstructured.NestedStringMap(u.Object, "security-labels")
	if err == nil {
		now.revision, err = slim.ParseRevision(u.GetResourceVersion())
	}
	if err != nil {
		return now, fmt.Errorf("reading identity %s: %w", number, err)
	}
	if at := u.GetCreationTimestamp(); !at.IsZero() {
		now.created = slim.MakeTime(at.Time)
	}
	now.number, now.uid = number, slim.ParseUID(string(u.GetUID()))
	now.labels = slim.MakeLabels(all)
	return now, nil
}
