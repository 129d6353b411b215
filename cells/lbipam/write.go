// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/printable"
)

const (
	// writers is how many Services are written at once.
	writers = 16
	// poolInterval is the least time between two writes of a pool.
	poolInterval = time.Second
	// staleLimit is how long the last write of an object is awaited in the cache.
	staleLimit = 5 * time.Second
)

// written is the last write of an object.
type written struct {
	revision slim.Revision
	at       time.Time
	want     string
}

// statusWrite is a status that is to be written.
type statusWrite struct {
	ref      k8s.Ref
	uid      slim.UID
	revision slim.Revision
	want     wanted
	ops      []operation
	// undone says that another writer has undone the same write.
	undone bool
	// markSent records that the status is written if the object has a revision. It is false where the status is not wanted any more.
	markSent func(slim.Revision) bool
}

// writeService writes the status of a Service.
func (c *controller) writeService(ctx context.Context, key slim.Key) error {
	w, event, err := c.nextServiceWrite(key)
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if w == nil {
		return c.resolveSent(ctx, key)
	}
	revision, err := c.write(k8s.WithOneSource(ctx), w)
	c.recordSent(key, revision, w, err)
	if err != nil {
		return err
	}
	if event != nil {
		c.Events.Warning(event.about, event.reason, event.message)
	}
	return nil
}

// recordSent records the answer to a write.
func (c *controller) recordSent(key slim.Key, revision slim.Revision, w *statusWrite, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.alloc.services[key]; s != nil && err != nil {
		s.sent.at = c.now()
	} else if s != nil {
		c.written[key] = written{revision, c.now(), w.want.String()}
	}
}

// resolveSent releases the addresses of a write that has not been stored, and that no other write follows: there is no event
// about it.
func (c *controller) resolveSent(ctx context.Context, key slim.Key) error {
	revision, since := c.unresolved(key)
	if revision == 0 {
		return nil
	}
	if rest := staleLimit - c.now().Sub(since); rest > 0 { // it may be under way
		return reconcile.RequeueAfter(rest)
	}
	ref := k8s.Ref{Resource: serviceKind.Resource(), Namespace: key.Namespace, Name: key.Name, Subresource: "status"}
	now, err := c.Client.Get(ctx, ref)
	switch {
	case k8s.IsNotFound(err, ref), err == nil && now.GetResourceVersion() != revision.String():
		return reconcile.Recheck()
	case err != nil:
		return err
	}
	c.update(func(a *allocator) { a.forgetUnstored(key, revision) }, c.Deps.TermTrigger())
	return nil
}

// unresolved is the revision that the last write of a Service tests, and when it ended, if nothing tells whether it is
// stored; else 0.
func (c *controller) unresolved(key slim.Key) (revision slim.Revision, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.alloc.services[key]
	if s == nil || len(s.sent.addrs) == 0 || c.written[key].revision > s.object.ResourceVersion {
		return 0, time.Time{}
	}
	return s.sent.revision, s.sent.at
}

// nextServiceWrite is what has to be written to a Service, nil if there is nothing, and the Event about it. The error says
// to try again later.
func (c *controller) nextServiceWrite(key slim.Key) (*statusWrite, *warning, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.alloc.services[key]
	if s == nil {
		return nil, nil, nil
	}
	want, ok := c.alloc.desiredService(s)
	status := s.object.Status
	ops := difference(status.LoadBalancer.Ingress, status.Conditions, want, c.now())
	if !ok || len(ops) == 0 {
		return nil, nil, nil
	}
	w := &statusWrite{
		ref: k8s.Ref{Resource: serviceKind.Resource(), Namespace: key.Namespace, Name: key.Name, Subresource: "status"},
		uid: s.uid, revision: s.object.ResourceVersion, want: want, ops: ops,
	}
	w.markSent = func(revision slim.Revision) bool {
		return c.alloc.services[key] == s && c.alloc.markSent(s, revision, want.addrs)
	}
	if err := w.follows(c.written[key], c.now()); err != nil {
		return nil, nil, err
	}
	w.markSent(w.revision)
	return w, s.warning(), nil
}

// follows compares a write with the last one of the object. The error says to wait until the cache has that.
func (w *statusWrite) follows(last written, now time.Time) error {
	if w.revision < last.revision {
		if rest := staleLimit - now.Sub(last.at); rest > 0 {
			return reconcile.RequeueAfter(rest)
		}
		return nil
	}
	w.undone = last.revision > 0 && last.want == w.want.String()
	return nil
}

// writePool writes the status of a pool, at most once a second.
func (c *controller) writePool(ctx context.Context, name string) error {
	w, err := c.nextPoolWrite(name)
	if err != nil || w == nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	revision, err := c.write(ctx, w)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alloc.pools[name] != nil {
		c.poolsWritten[name] = written{revision, c.now(), w.want.String()}
	}
	return nil
}

// nextPoolWrite is what has to be written to a pool, nil if there is nothing. The error says to try again later.
func (c *controller) nextPoolWrite(name string) (*statusWrite, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.alloc.pools[name]
	if p == nil {
		return nil, nil
	}
	want, ok := c.alloc.desiredPool(p)
	ops := difference(nil, p.object.conditions(), want, c.now())
	if !ok || len(ops) == 0 {
		return nil, nil
	}
	if p.object.Status == nil {
		ops = append([]operation{addStatus}, ops...)
	}
	last := c.poolsWritten[name]
	if rest := poolInterval - c.now().Sub(last.at); rest > 0 {
		return nil, reconcile.RequeueAfter(rest)
	}
	w := &statusWrite{
		ref: k8s.Ref{Resource: poolKind.Resource(), Name: name, Subresource: "status"},
		uid: p.object.UID, revision: p.object.ResourceVersion, want: want, ops: ops,
		markSent: func(slim.Revision) bool { return true },
	}
	err := w.follows(last, c.now())
	w.undone = false // the interval is enough of a pause, and roles allow patches alone
	return w, err
}

// now is the time, in a dry run the simulated one.
func (c *controller) now() time.Time { return c.Deps.Plan.Now() }

// write writes a status, and returns the revision of the object as stored. It is a patch that tests the revision, so that
// nothing of other writers is lost. Where another writer has undone the same write, the object is read and replaced by the
// client, which tells of the contention and pauses.
func (c *controller) write(ctx context.Context, w *statusWrite) (slim.Revision, error) {
	var stored *unstructured.Unstructured
	var err error
	if w.undone {
		stored, err = c.modify(ctx, w)
	} else {
		stored, err = c.patch(ctx, w)
	}
	if err != nil {
		return 0, err
	}
	status, err := statusOf(stored)
	if err != nil {
		return 0, err
	}
	if !w.want.shows(status.LoadBalancer.Ingress, status.Conditions) {
		return 0, &k8s.NotStoredError{Ref: w.ref, Field: "status"}
	}
	return slim.ParseRevision(stored.GetResourceVersion())
}

func (c *controller) patch(ctx context.Context, w *statusWrite) (*unstructured.Unstructured, error) {
	tests := []operation{{"test", "/metadata/resourceVersion", w.revision.String()}}
	body, err := json.Marshal(append(tests, w.ops...))
	if err != nil {
		return nil, err
	}
	stored, err := c.Client.Patch(ctx, w.ref, body)
	if err == nil || !k8s.Refused(err) || errors.As(err, new(*k8s.ContentionError)) {
		return stored, err
	}
	return nil, reconcile.PatchRefused(ctx, c.Client, w.ref, w.revision.String(), err)
}

// modify reads the object, and replaces the status.
func (c *controller) modify(ctx context.Context, w *statusWrite) (*unstructured.Unstructured, error) {
	ref := w.ref
	ref.UID = w.uid.API()
	stored, _, err := c.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		status, err := statusOf(u)
		if err != nil {
			return err
		}
		revision, err := slim.ParseRevision(u.GetResourceVersion())
		if err != nil {
			return err
		}
		if !c.markSent(w, revision) { // what it adds may be another's by now
			return reconcile.Recheck()
		}
		return apply(u, difference(status.LoadBalancer.Ingress, status.Conditions, w.want, c.now()))
	})
	if k8s.IsNotFound(err, w.ref) {
		return nil, reconcile.Recheck()
	}
	return stored, err
}

func (c *controller) markSent(w *statusWrite, revision slim.Revision) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.markSent(revision)
}

// statusOf reads the status of an object, of a Service or a pool.
func statusOf(u *unstructured.Unstructured) (status serviceStatus, err error) {
	text, err := json.Marshal(u.Object["status"])
	if err != nil {
		return status, err
	}
	err = json.Unmarshal(text, &status)
	status.trim()
	return status, err
}

// apply applies operations to an object.
func apply(u *unstructured.Unstructured, ops []operation) error {
	if len(ops) == 0 {
		return nil
	}
	if u.Object["status"] == nil {
		ops = append([]operation{addStatus}, ops...)
	}
	text, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return err
	}
	before, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return fmt.Errorf("applying the change of the status: %w", err)
	}
	return u.UnmarshalJSON(after)
}

// warning is an Event about a Service.
type warning struct {
	about           corev1.ObjectReference
	reason, message string
	byOthers        bool // Services of others cause it: it is no warning, so that it leaves the Events of the object's own findings alone
}

// eventReasons are the reasons of Events, by the reason of the condition.
var eventReasons = map[string]string{
	reasonNoPool: "NoPool", reasonOutOfIPs: "OutOfIPs", reasonSelector: "PoolSelectorMismatch", reasonTaken: "AlreadyAllocated",
	reasonIncompatible: "AlreadyAllocatedIncompatibleService", reasonReserved: "ReservedIP", reasonInvalidIP: "InvalidIP", reasonTooMany: "TooManyIPs",
}

// warning is the Event about the condition of a Service that is to be written, nil if it is True or stays as it is.
func (s *service) warning() *warning {
	conditions := s.object.Status.Conditions
	i := slices.IndexFunc(conditions, isSatisfied)
	if !s.ours || s.result == (result{}) || i >= 0 && conditions[i].Reason.String() == s.result.reason && conditions[i].Message == printable.Line(s.result.message) {
		return nil
	}
	message := s.result.message
	if s.result.has != (slim.Key{}) {
		message = fmt.Sprintf("%s. Service %s has it", message, s.result.has)
	}
	return &warning{s.reference(), eventReasons[s.result.reason], message, false}
}

// maxClaims is how many of the Services that lose an address to one are named on that, of one change.
const maxClaims = 5

// warningsOf are the Events about addresses that Services lose to others: on each of these, and on the one that keeps it.
func warningsOf(all []contest) (events []warning) {
	claims := map[*service]int{}
	for _, two := range all {
		events = append(events, warning{two.loses.reference(), contestEventReason(true), two.lossMessage(), false})
		if claims[two.has]++; claims[two.has] <= maxClaims {
			events = append(events, warning{two.has.reference(), contestEventReason(false), two.claimMessage(), true})
		}
	}
	return events
}

// contestEventReason is the reason of the Event on a Service that loses an address, or keeps it.
func contestEventReason(loses bool) string {
	if loses {
		return "AddressOfAnother"
	}
	return "AddressContested"
}

func (s *service) reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.key.Namespace, Name: s.key.Name, UID: s.uid.API()}
}
