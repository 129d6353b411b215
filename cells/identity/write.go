// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// writers is how many identities are made at once.
const writers = 64

// look makes the object of a set of labels, if it lacks one.
func (m *maker) look(ctx context.Context, of slim.Labels) error {
	began := time.Now()
	var todo step
	var pause time.Duration
	m.revise(func(t *table) {
		if todo = t.next(of); todo.number == 0 {
			return // it takes no turn from those that have to make something
		}
		if pause = m.pace.pause(t.now); pause > 0 {
			t.putOff(of, todo)
		}
	})
	switch {
	case pause > 0:
		explain.Note(ctx, "waits: it is forbidden to create ciliumidentities.cilium.io")
		return reconcile.After(pause)
	case todo.number == 0:
		m.Metrics.looked(todo.waited, time.Since(began), todo.why != noneFree)
		explain.Note(ctx, todo.why)
		if todo.why == noneFree {
			m.exhausted()
		}
		return nil
	}
	err := m.create(ctx, todo, of)
	m.Metrics.looked(todo.waited, time.Since(began), err == nil)
	return err
}

// revise is change for what a look does: what it touches was its own doing.
func (m *maker) revise(f func(*table)) {
	for _, s := range m.change(f) {
		m.add(s.labels)
	}
}

// create makes the object with a number. What is there already under this name is
// looked at: the answer to an earlier request may have got lost.
func (m *maker) create(ctx context.Context, todo step, of slim.Labels) error {
	began, number := time.Now(), todo.number
	has, err := m.Client.Create(ctx, v2.CiliumIdentityResource, encode(number, of))
	m.Metrics.created(todo.waited, time.Since(began), err == nil)
	m.refused(of, err)
	if apierrors.IsAlreadyExists(err) {
		has, err = m.Client.Get(ctx, k8s.Ref{Resource: v2.CiliumIdentityResource, Name: number.String()})
		if err != nil {
			err = fmt.Errorf("identity %s exists, and its labels are not known: %w", number, err)
		}
	}
	if err != nil {
		m.revise(func(t *table) { t.failed(of) })
		if apierrors.IsForbidden(err) {
			return reconcile.After(forbiddenPause)
		}
		return err
	}
	is, created, revision, err := parse(has)
	if err != nil {
		m.revise(func(t *table) { t.failed(of) })
		return err
	}
	m.revise(func(t *table) { t.made(of, number, is, created, revision) })
	if is != of {
		explain.Note(ctx, fmt.Sprintf("identity %s exists with other labels, another number is drawn", number))
	}
	return nil
}

// encode is the object of a number.
func encode(number identity.Number, of slim.Labels) *v2.CiliumIdentity {
	set := labels.Set(of.Map())
	return &v2.CiliumIdentity{
		TypeMeta:       metav1.TypeMeta{APIVersion: v2.SchemeGroupVersion.String(), Kind: "CiliumIdentity"},
		ObjectMeta:     metav1.ObjectMeta{Name: number.String(), Labels: set.Metadata()},
		SecurityLabels: set,
	}
}

// parse reads of an object what the table keeps.
func parse(u *unstructured.Unstructured) (of slim.Labels, created slim.Time, revision slim.Revision, err error) {
	all, _, err := unstructured.NestedStringMap(u.Object, "security-labels")
	if err == nil {
		revision, err = slim.ParseRevision(u.GetResourceVersion())
	}
	if err != nil {
		return of, 0, 0, fmt.Errorf("reading identity %s: %w", u.GetName(), err)
	}
	if at := u.GetCreationTimestamp(); !at.IsZero() {
		created = slim.MakeTime(at.Time)
	}
	return slim.MakeLabels(all), created, revision, nil
}

// pace holds back requests that the role does not allow, but for one now and
// then, and says so in the log no more often than once a minute.
type pace struct {
	mu        sync.Mutex
	refused   slim.Labels // since the last that was made; what was refused first
	forbidden bool        // others were refused, too: it is the role
	next      time.Time   // for a request
	told      map[string]time.Time
}

const (
	forbiddenPause = 5 * time.Second
	tellEvery      = time.Minute
)

// pause is how long a request has to wait. Of those that have waited, one goes.
func (p *pace) pause(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.forbidden {
		return 0
	}
	if rest := p.next.Sub(now); rest > 0 {
		return rest
	}
	p.next = now.Add(forbiddenPause)
	return 0
}

// refuse notes that a request was forbidden. One alone may be forbidden by an
// admission webhook, and holds back nothing else.
func (p *pace) refuse(of slim.Labels, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == (slim.Labels{}) {
		p.refused = of
	}
	p.forbidden = p.forbidden || p.refused != of
	p.next = now.Add(forbiddenPause)
}

// allow notes that a request was not forbidden. It reports whether the last one was.
func (p *pace) allow() (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = p.refused != (slim.Labels{})
	p.refused, p.forbidden = slim.Labels{}, false
	return changed
}

// due reports whether something may be told again.
func (p *pace) due(what string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.told[what]; ok && now.Sub(last) < tellEvery {
		return false
	}
	if p.told == nil {
		p.told = map[string]time.Time{}
	}
	p.told[what] = now
	return true
}

// refused tells whether identities may be made.
func (m *maker) refused(of slim.Labels, err error) {
	const text = "it is forbidden to create ciliumidentities.cilium.io: pods with new labels do not start until the role, or the admission webhook, allows it"
	part := m.Health.Part("create")
	switch {
	case apierrors.IsForbidden(err):
		m.pace.refuse(of, time.Now())
		part.Degraded(text, err)
		if m.pace.due("forbidden", time.Now()) {
			m.Log.Warn(text+"; trying on", "error", err, "labels", of.String())
		}
	case err != nil && !apierrors.IsAlreadyExists(err): // it says nothing about that
	case m.pace.allow():
		part.OK("")
	}
}

// exhausted tells that no number is free.
func (m *maker) exhausted() {
	m.Metrics.Exhausted.Inc()
	if m.pace.due("exhausted", time.Now()) {
		m.Log.Warn("no number of the cluster's range is free: pods with new labels do not start until identities are deleted; leave out labels that differ from pod to pod (option labels)")
	}
}
