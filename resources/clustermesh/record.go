// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/job"
)

// The Lease that keeps the IDs of clusters over restarts. It is a Lease, as the role of each chart allows the operator to create and update
// these, and no other object that belongs to no duty.
const (
	recordName       = "skep-clustermesh"
	recordAnnotation = "skep.dev/cluster-ids"
)

var leases = coordinationv1.SchemeGroupVersion.WithResource("leases")

// record is what the Lease keeps, as it was seen last.
type record struct {
	exists bool
	kept   map[string]uint32
}

func (m *Mesh) recordRef() k8s.Ref {
	return k8s.Ref{Resource: leases, Namespace: cmp.Or(m.Cluster.K8sNamespace, metav1.NamespaceDefault), Name: recordName}
}

// keepIDs keeps the IDs of clusters until ctx ends. A record that cannot be read or written is tried again; clusters wait for it for a while.
func (m *Mesh) keepIDs(ctx context.Context) error {
	if m.Client == nil {
		m.isRecorded.Do(func() { close(m.recorded) })
		return nil
	}
	ctx = k8s.WithCause(ctx, &k8s.Cause{Rule: m.Deps.Module.ID + " keep the IDs of clusters", Triggers: []k8s.Trigger{m.Deps.TermTrigger()}})
	var r *record
	failed := false
	for {
		err := m.keepOnce(ctx, &r)
		if err != nil && !failed && ctx.Err() == nil {
			m.Log.Warn("the IDs of remote clusters are not kept over restarts, trying again", "lease", m.recordRef().Name, "error", err)
		}
		failed = err != nil
		if !job.Sleep(ctx, m.timing.scan) {
			return nil
		}
	}
}

// keepOnce reads the record, if that was not done, and writes it if it differs from what is known.
func (m *Mesh) keepOnce(ctx context.Context, r **record) (err error) {
	if *r == nil {
		if *r, err = m.readRecord(ctx); err != nil {
			return err
		}
		m.adopt((*r).kept)
		m.isRecorded.Do(func() { close(m.recorded) })
	}
	if _, known := m.Clusters(); !known { // which of the record are still configured
		return nil
	}
	want := m.ids.byName()
	if !maps.Equal((*r).kept, want) {
		if err = m.writeRecord(ctx, *r, want); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = want
	return nil
}

// readRecord reads the Lease. What cannot be decoded keeps nothing.
func (m *Mesh) readRecord(ctx context.Context) (*record, error) {
	ref := m.recordRef()
	u, err := m.Client.Get(ctx, ref)
	switch {
	case k8s.IsNotFound(err, ref):
		return &record{kept: map[string]uint32{}}, nil
	case err != nil:
		return nil, err
	}
	r := &record{exists: true, kept: map[string]uint32{}}
	if text, has := u.GetAnnotations()[recordAnnotation]; has {
		if err := json.Unmarshal([]byte(text), &r.kept); err != nil {
			m.Log.Warn("the IDs that remote clusters had cannot be decoded, and are those that are read first", "lease", ref.Name, "error", err)
		}
	}
	if r.kept == nil {
		r.kept = map[string]uint32{}
	}
	return r, nil
}

// adopt has clusters keep the IDs of an earlier term. One that was read before under an ID of another is read again, and refused then.
func (m *Mesh) adopt(kept map[string]uint32) {
	for _, name := range m.ids.adopt(kept) {
		m.mu.Lock()
		r := m.remotes[name]
		m.mu.Unlock()
		if r != nil {
			r.readAgain()
		}
	}
}

// writeRecord writes the Lease.
func (m *Mesh) writeRecord(ctx context.Context, r *record, want map[string]uint32) error {
	ref := m.recordRef()
	text, err := json.Marshal(want)
	if err != nil {
		return err
	}
	if r.exists {
		_, err = k8s.Update(ctx, m.Client, ref, func(l *coordinationv1.Lease) error {
			if l.Annotations == nil {
				l.Annotations = map[string]string{}
			}
			l.Annotations[recordAnnotation] = string(text)
			return nil
		})
	} else {
		_, err = k8s.Create(ctx, m.Client, leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, Annotations: map[string]string{recordAnnotation: string(text)}},
		})
	}
	switch {
	case k8s.IsNotFound(err, ref):
		r.exists = false
	case err == nil, k8s.IsAlreadyExists(err, ref):
		r.exists = true
	}
	if err == nil {
		r.kept = want
	}
	return err
}

// awaitRecord waits for the IDs that clusters had, for a while: an API server that is away keeps no cluster from being read.
func (m *Mesh) awaitRecord(ctx context.Context) bool {
	select {
	case <-m.recorded:
		return true
	case <-time.After(time.Until(m.began.Add(m.timing.record))):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
