// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

const (
	copyManager = "endpointslice-local-mcsapi-controller.cilium.io"
	meshManager = "endpointslice-mesh-controller.cilium.io"
	copyLabel   = "service.cilium.io/local-endpointslice"
)

// endpointSlice is an EndpointSlice of a Service without a selector, whose endpoints its user or another controller writes.
type endpointSlice struct {
	sliceMeta   `json:"metadata"`
	AddressType slim.String                `json:"addressType"`
	Endpoints   []discoveryv1.Endpoint     `json:"endpoints"`
	Ports       []discoveryv1.EndpointPort `json:"ports"`
}

type sliceMeta struct {
	slim.Meta
	Labels            slim.Labels           `json:"labels"`
	Owners            []slim.OwnerReference `json:"ownerReferences"`
	DeletionTimestamp slim.Time             `json:"deletionTimestamp"`
}

// sliceCopy is an EndpointSlice of a derived Service that is a copy of one of the Service.
type sliceCopy endpointSlice

var (
	// Copies are among them: a name is reconciled again when both streams have shown what was written.
	endpointSlices = stream.Core[endpointSlice, discoveryv1.EndpointSlice](discoveryv1.SchemeGroupVersion.WithResource("endpointslices")).
			MatchingLabels(discoveryv1.LabelServiceName + "," + discoveryv1.LabelManagedBy + "!=" + meshManager)
	sliceCopies = stream.Core[sliceCopy, discoveryv1.EndpointSlice](discoveryv1.SchemeGroupVersion.WithResource("endpointslices")).
			MatchingLabels(discoveryv1.LabelManagedBy + "=" + copyManager)

	byService = stream.NewIndex("service", func(s *endpointSlice, add func(slim.Key)) { add(s.service()) })
	byName    = stream.NewIndex("name", func(s *sliceCopy, add func(slim.Key)) { add(s.of()) })
)

// service is the Service of an EndpointSlice.
func (s *endpointSlice) service() slim.Key {
	return slim.Key{Namespace: s.Namespace.String(), Name: s.Labels.Get(discoveryv1.LabelServiceName)}
}

// of is the name of the service that a copy is of.
func (s *sliceCopy) of() slim.Key {
	return slim.Key{Namespace: s.Namespace.String(), Name: s.Labels.Get(mcsv1alpha1.LabelServiceName)}
}

// copiesSlices reports whether the endpoints of this cluster are those of EndpointSlices that Kubernetes does not make for the
// derived Service.
func (s *state) copiesSlices() bool {
	return s.published != nil && s.service.Spec.Selector.Len() == 0 && s.derived != nil && s.isOwned()
}

// newCopy is the copy of an EndpointSlice for the derived Service. Its name follows from that of the EndpointSlice.
func (s *state) newCopy(of *endpointSlice) *discoveryv1.EndpointSlice {
	sum := sha256.Sum256([]byte(of.Name + " " + of.AddressType.String()))
	suffix := strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:10])
	c := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.key.Namespace, Name: s.derived.Name + "-" + suffix, Labels: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: s.derived.Name, UID: s.derived.UID.API(), Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		AddressType: discoveryv1.AddressType(of.AddressType.String()), Endpoints: of.Endpoints, Ports: of.Ports,
	}
	maps.Copy(c.Labels, of.Labels.Map())
	c.Labels[discoveryv1.LabelServiceName], c.Labels[discoveryv1.LabelManagedBy] = s.derived.Name, copyManager
	c.Labels[mcsv1alpha1.LabelServiceName], c.Labels[mcsv1alpha1.LabelSourceCluster] = s.key.Name, s.cluster
	if c.Labels[copyLabel] = of.Name; len(validation.IsValidLabelValue(of.Name)) > 0 {
		c.Labels[copyLabel] = suffix
	}
	return c
}

// differs reports whether a copy is not as it is to be.
func (s *sliceCopy) differs(want *discoveryv1.EndpointSlice) bool {
	owner := want.OwnerReferences[0]
	return !maps.Equal(s.Labels.Map(), want.Labels) || len(s.Owners) != 1 || s.Owners[0].UID.API() != owner.UID || !s.Owners[0].Controller ||
		!equality.Semantic.DeepEqual(s.Endpoints, want.Endpoints) || !equality.Semantic.DeepEqual(s.Ports, want.Ports)
}

// bringSlices brings the copies of EndpointSlices to their desired state, where the role allows to write them.
func (c *controller) bringSlices(ctx context.Context, s *state) error {
	copies := map[string]*sliceCopy{}
	for has := range stream.ByIndex(c.copies, byName, s.key) {
		copies[has.Name] = has
	}
	if s.mayBeExported() {
		return nil
	}
	var want []*discoveryv1.EndpointSlice
	if s.copiesSlices() && c.mayCopy(s) {
		store := c.slices.Need(s.key)
		if store == nil || len(store.Unreadable()) > 0 {
			return nil
		}
		for of := range stream.ByIndex(store, byService, s.service.Key()) {
			want = append(want, s.newCopy(of))
		}
	} else {
		c.slices.Drop(s.key)
	}
	var errs []error
	var missing []*discoveryv1.EndpointSlice
	for _, w := range want {
		has := copies[w.Name]
		delete(copies, w.Name)
		switch {
		case has == nil:
			missing = append(missing, w)
		case has.differs(w):
			errs = append(errs, s.withoutPermission(c.updateCopy(ctx, has, w)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(copies)) {
		errs = append(errs, s.withoutPermission(k8s.Delete(ctx, c.Client, copies[name].ref())))
	}
	return errors.Join(append(errs, c.createCopies(ctx, s, missing))...)
}

// createCopies creates copies for a derived Service that stays: the garbage collector deletes copies with their Service, and
// may be faster than the stream of Services.
func (c *controller) createCopies(ctx context.Context, s *state, missing []*discoveryv1.EndpointSlice) error {
	if len(missing) == 0 {
		return nil
	}
	ref := s.derivedRef()
	switch derived, err := c.Client.Get(ctx, ref); {
	case k8s.IsNotFound(err, ref), err == nil && derived.GetDeletionTimestamp() != nil:
		return reconcile.Recheck()
	case err != nil:
		return err
	}
	var errs []error
	for _, w := range missing {
		errs = append(errs, s.withoutPermission(c.createCopy(ctx, w)))
	}
	return errors.Join(errs...)
}

// mayCopy reports whether the role allows to write EndpointSlices.
func (c *controller) mayCopy(s *state) bool {
	return !c.denies(s, "create", k8s.Ref{Resource: sliceCopies.Resource(), Namespace: s.key.Namespace})
}

func (s *sliceCopy) ref() k8s.Ref {
	return k8s.Ref{Resource: sliceCopies.Resource(), Namespace: s.Namespace.String(), Name: s.Name, UID: s.UID.API()}
}

func (c *controller) createCopy(ctx context.Context, want *discoveryv1.EndpointSlice) error {
	_, err := k8s.Create(ctx, c.Client, sliceCopies.Resource(), want)
	if k8s.IsAlreadyExists(err, k8s.Ref{Resource: sliceCopies.Resource(), Namespace: want.Namespace, Name: want.Name}) {
		return reconcile.Recheck()
	}
	return err
}

func (c *controller) updateCopy(ctx context.Context, has *sliceCopy, want *discoveryv1.EndpointSlice) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return err
	}
	ref := has.ref()
	_, _, err = c.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		u.SetLabels(want.Labels)
		u.SetOwnerReferences(want.OwnerReferences)
		u.Object["endpoints"], u.Object["ports"] = content["endpoints"], content["ports"] // whole: no endpoint keeps a part of another
		return nil
	})
	if k8s.IsNotFound(err, ref) {
		return reconcile.Recheck()
	}
	return err
}

// sliceChanged is the name of the Service of an EndpointSlice, if copies are made for it.
func (c *controller) sliceChanged(ch stream.Change[endpointSlice]) []slim.Key {
	if key := ch.Object.service(); c.slices.Needs(key) {
		return []slim.Key{key}
	}
	return nil
}

func (*controller) copyChanged(ch stream.Change[sliceCopy]) []slim.Key {
	return []slim.Key{ch.Object.of()}
}

func (c *controller) slicesOnDemand() *reconcile.OnDemand[endpointSlice] { return &c.slices }
