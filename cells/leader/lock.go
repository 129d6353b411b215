// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/gentype"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/k8s"
)

var leaseResource = coordinationv1.SchemeGroupVersion.WithResource("leases")

var (
	// errLost ends a term whose lease is lost.
	errLost = errors.New("the lease is lost")
	// errTaken is the error of a replica that was not the first to acquire the lease.
	errTaken = errors.New("another replica acquired the lease first")
)

// lock reads and writes the lease. A response counts only if it is from the API server, is the lease, and has what was
// written.
type lock struct {
	leases    *gentype.Client[*coordinationv1.Lease]
	namespace string
	log       *slog.Logger
	// stored is the lease as written last by this replica.
	stored *coordinationv1.Lease
}

func (l *lock) describe() string { return l.namespace + "/" + leaseName }

// get returns the lease, nil if there is none.
func (l *lock) get(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := l.leases.Get(ctx, leaseName, metav1.GetOptions{})
	if k8s.IsNotFound(err, l.ref()) {
		return nil, nil
	}
	if err == nil && !l.isLease(lease) {
		err = fmt.Errorf("the response to a read of lease %s is another object: %s", l.describe(), shortJSON(lease))
	}
	return lease, err
}

// acquire makes this replica the holder of a lease, which is nil if it does not exist. The error is errTaken if another
// replica was faster.
func (l *lock) acquire(ctx context.Context, lease *coordinationv1.Lease, spec coordinationv1.LeaseSpec) error {
	var err error
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName, Namespace: l.namespace}, Spec: spec}
		err = l.store(lease, func() (*coordinationv1.Lease, error) { return l.leases.Create(ctx, lease, metav1.CreateOptions{}) })
	} else {
		lease = lease.DeepCopy()
		lease.Spec = spec
		delete(lease.Annotations, writtenAnnotation)
		err = l.update(ctx, lease)
	}
	if k8s.IsConflict(err, l.ref()) || k8s.IsAlreadyExists(err, l.ref()) {
		return errTaken
	}
	return err
}

// write updates the lease held by this replica. The error is errLost if another replica holds it, or may have held it
// since.
func (l *lock) write(ctx context.Context, change func(*coordinationv1.Lease) error) error {
	next := l.stored.DeepCopy()
	if err := change(next); err != nil {
		return err
	}
	err := l.update(ctx, next)
	if !k8s.IsConflict(err, l.ref()) && !k8s.IsNotFound(err, l.ref()) {
		return err
	}
	// Another writer has changed it, or an own request whose response was lost.
	current, err := l.get(ctx)
	switch {
	case err != nil:
		return err
	case current == nil:
		return fmt.Errorf("%w: it was deleted", errLost)
	case current.UID != l.stored.UID || !sameTerm(l.stored.Spec, current.Spec):
		return fmt.Errorf("%w: it is of another term: %s", errLost, shortJSON(current.Spec))
	}
	holder := ptr.Deref(current.Spec.HolderIdentity, "")
	if holder != "" && holder != *l.stored.Spec.HolderIdentity {
		return fmt.Errorf("%w: %q holds it", errLost, holder)
	}
	l.logEdit(current)
	next = current.DeepCopy()
	if err := change(next); err != nil {
		return err
	}
	return l.update(ctx, next)
}

// logEdit logs an edit by another writer in the lease of a continuing term. Without a holder the lease is still that of
// the term: an acquisition changes the count of transitions, and no replica acquires it before it expires.
func (l *lock) logEdit(current *coordinationv1.Lease) {
	expected := l.stored.Spec
	expected.RenewTime = current.Spec.RenewTime
	if !apiequality.Semantic.DeepEqual(expected, current.Spec) {
		l.log.Warn("the lease was edited, restoring it", "lease", l.describe(), "found", shortJSON(current.Spec))
	}
}

func (l *lock) update(ctx context.Context, lease *coordinationv1.Lease) error {
	return l.store(lease, func() (*coordinationv1.Lease, error) { return l.leases.Update(ctx, lease, metav1.UpdateOptions{}) })
}

// store sends a lease and keeps the response, if it has what was sent.
func (l *lock) store(sent *coordinationv1.Lease, send func() (*coordinationv1.Lease, error)) error {
	response, err := send()
	if err != nil {
		return err
	}
	if !l.isLease(response) || sent.UID != "" && response.UID != sent.UID || !confirms(response, sent) {
		return fmt.Errorf("the response to a write of lease %s differs from what was written: %s", l.describe(), shortJSON(response))
	}
	l.stored = response
	return nil
}

// isLease reports whether a response is the lease.
func (l *lock) isLease(o *coordinationv1.Lease) bool {
	return o.Name == leaseName && o.Namespace == l.namespace && o.UID != "" && o.ResourceVersion != ""
}

// confirms reports whether a response has the fields that other replicas read.
func confirms(response, sent *coordinationv1.Lease) bool {
	return ptr.Deref(response.Spec.HolderIdentity, "") == *sent.Spec.HolderIdentity && sameTerm(sent.Spec, response.Spec) &&
		sent.Spec.RenewTime.Equal(response.Spec.RenewTime) && response.Annotations[writtenAnnotation] == sent.Annotations[writtenAnnotation]
}

// ref is the lease, to classify errors.
func (l *lock) ref() k8s.Ref {
	return k8s.Ref{Resource: leaseResource, Namespace: l.namespace, Name: leaseName}
}

// shortJSON is an object as text that fits into a log line.
func shortJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.500s", text)
}
