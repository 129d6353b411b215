// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// The endpoint of a placeholder, to which no traffic is sent: agents up to 1.17 do not serve a Service without any.
const (
	placeholderIP         = "192.192.192.192"
	placeholderPort int32 = 9999
)

// Endpoints are deprecated in favour of EndpointSlices, which the roles of charts up to 1.18 do not allow to write.
type (
	//lint:ignore SA1019 see above
	coreEndpoints = corev1.Endpoints
	//lint:ignore SA1019 see above
	endpointSubset = corev1.EndpointSubset
)

var (
	sliceResource     = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	endpointsResource = corev1.SchemeGroupVersion.WithResource("endpoints")
)

// Slice is what is read of an EndpointSlice that is a placeholder. Each duty D has a stream of its own.
type Slice[D any] struct {
	PlaceholderMeta `json:"metadata"`
}

// Endpoints is what is read of Endpoints that are a placeholder.
type Endpoints[D any] struct {
	PlaceholderMeta `json:"metadata"`
}

// PlaceholderMeta is the metadata of a placeholder.
type PlaceholderMeta struct {
	slim.Meta
	Controller slim.Owner `json:"ownerReferences"`
}

// isControlledBy reports whether an object is the controller of a placeholder.
func (m *PlaceholderMeta) isControlledBy(owner types.UID) bool {
	return !m.Controller.IsZero() && m.Controller.Reference().UID.API() == owner
}

// Slices are the EndpointSlices with a label, for the duty D.
func Slices[D any](label string) stream.Kind[Slice[D]] {
	return stream.Core[Slice[D], discoveryv1.EndpointSlice](sliceResource).MatchingLabels(label)
}

// EndpointsWith are the Endpoints with a label, for the duty D.
func EndpointsWith[D any](label string) stream.Kind[Endpoints[D]] {
	return stream.Core[Endpoints[D], coreEndpoints](endpointsResource).MatchingLabels(label)
}

// Placeholder is what stands in for the backends of a Service, which Envoy is in place of: an object of the Service's name with
// one endpoint.
type Placeholder struct {
	Service slim.Key
	Owner   *metav1.OwnerReference
	// Label, Value, Desired and Last are as those of OwnedObject.
	Label, Value string
	Desired      any
	Last         *Checked
	// Labels and Annotations are added to those that the object has.
	Labels, Annotations map[string]string
}

// Placed are the placeholders that there are. The store of a kind that is not needed, or not complete yet, is nil.
type Placed[D any] struct {
	of        *Placeholders[D]
	as        decision
	slices    *stream.Store[Slice[D]]
	endpoints *stream.Store[Endpoints[D]]
}

// Write creates or updates a placeholder, as WriteObject does, and then removes the one of the other kind: the Service has one
// at any time. Where the role has lost the kind, the key is reconciled again at once, with the other one.
func (p *Placed[D]) Write(ctx context.Context, client k8s.Client, o Placeholder) error {
	err := p.write(ctx, client, o)
	if isForbidden(err) && p.of.isOutdated(p.as) {
		return reconcile.RequeueAfter(rolePause)
	}
	if err != nil {
		return err
	}
	return p.removeOther(ctx, client, o.Service, o.Owner.UID)
}

func (p *Placed[D]) write(ctx context.Context, client k8s.Client, o Placeholder) error {
	switch p.as.way {
	case bySlice:
		has := Cached(p.slices, o.Service)
		if has == nil && p.HasSlices(o.Owner.UID) {
			return nil
		}
		return WriteObject(ctx, client, o.slice(), has)
	case byEndpoints:
		return WriteObject(ctx, client, o.endpoints(), Cached(p.endpoints, o.Service))
	}
	return nil
}

// HasSlices reports whether an object controls EndpointSlices already: where they have the backends of its Service, as those that
// are written for TCP and UDP, no placeholder is needed.
func (p *Placed[D]) HasSlices(owner types.UID) bool {
	return p.slices != nil && stream.CountByIndex(p.slices, p.of.byController, slim.ParseUID(string(owner))) > 0
}

func (p *Placed[D]) removeOther(ctx context.Context, client k8s.Client, service slim.Key, owner types.UID) error {
	if p.as.way == bySlice {
		return removeOwned(ctx, client, endpointsResource, p.endpoints, service, owner)
	}
	return removeOwned(ctx, client, sliceResource, p.slices, service, owner)
}

// Remove deletes the placeholders of a Service that an object controls, of both kinds.
func (p *Placed[D]) Remove(ctx context.Context, client k8s.Client, service slim.Key, owner types.UID) error {
	return errors.Join(
		removeOwned(ctx, client, sliceResource, p.slices, service, owner),
		removeOwned(ctx, client, endpointsResource, p.endpoints, service, owner),
	)
}

// controlled is an object with a controller.
type controlled[T any] interface {
	*T
	isControlledBy(owner types.UID) bool
}

// removeOwned deletes an object if a store, which may be nil, has it, and it is the owner's. Where the role does not allow that
// any more it stays, until garbage collection deletes it with its owner.
func removeOwned[T any, P controlled[T]](ctx context.Context, client k8s.Client, resource schema.GroupVersionResource, in *stream.Store[T], key slim.Key, owner types.UID) error {
	if in == nil {
		return nil
	}
	has, exists := in.Get(key)
	if !exists || !P(has).isControlledBy(owner) {
		return nil
	}
	err := k8s.Delete(ctx, client, k8s.Ref{Resource: resource, Namespace: key.Namespace, Name: key.Name, UID: slim.MetaOf(has).UID.API()})
	if isForbidden(err) {
		return nil
	}
	return err
}

// isForbidden reports whether the role does not allow what was tried.
func isForbidden(err error) bool {
	var forbidden *k8s.PermissionError
	return errors.As(err, &forbidden)
}

// slice is a placeholder as an EndpointSlice. It has the shape of those of releases from 1.20 on, which are not written again.
func (p Placeholder) slice() OwnedObject[discoveryv1.EndpointSlice] {
	return OwnedObject[discoveryv1.EndpointSlice]{
		Resource: sliceResource, Kind: "EndpointSlice", Key: p.Service, Owner: p.Owner, Label: p.Label, Value: p.Value,
		Edit: func(to *discoveryv1.EndpointSlice, isNew bool) {
			AddMeta(to, p.Labels, p.Annotations)
			AddMeta(to, map[string]string{discoveryv1.LabelServiceName: p.Service.Name}, nil)
			setSlice(to, isNew)
		},
		Fits:    func(has *discoveryv1.EndpointSlice) bool { return has.AddressType == discoveryv1.AddressTypeIPv4 },
		Desired: p.Desired, Last: p.Last,
	}
}

// endpoints is a placeholder as Endpoints.
func (p Placeholder) endpoints() OwnedObject[coreEndpoints] {
	return OwnedObject[coreEndpoints]{
		Resource: endpointsResource, Kind: "Endpoints", Key: p.Service, Owner: p.Owner, Label: p.Label, Value: p.Value,
		Edit: func(to *coreEndpoints, _ bool) {
			AddMeta(to, p.Labels, p.Annotations)
			setEndpoints(to)
		},
		Desired: p.Desired, Last: p.Last,
	}
}

// setSlice sets the endpoint of an EndpointSlice. The type of the addresses of one that exists cannot be changed.
func setSlice(s *discoveryv1.EndpointSlice, isNew bool) {
	if isNew {
		s.AddressType = discoveryv1.AddressTypeIPv4
	}
	if len(s.Endpoints) != 1 || !isPlaceholder(s.Endpoints[0]) {
		s.Endpoints = []discoveryv1.Endpoint{{
			Addresses: []string{placeholderIP}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		}}
	}
	if len(s.Ports) != 1 || !isPlaceholderPort(s.Ports[0]) {
		s.Ports = []discoveryv1.EndpointPort{{Name: new(""), Protocol: new(corev1.ProtocolTCP), Port: new(placeholderPort)}}
	}
}

func isPlaceholder(e discoveryv1.Endpoint) bool {
	return len(e.Addresses) == 1 && e.Addresses[0] == placeholderIP && e.Conditions.Ready != nil && *e.Conditions.Ready
}

func isPlaceholderPort(p discoveryv1.EndpointPort) bool {
	return p.Port != nil && *p.Port == placeholderPort && (p.Name == nil || *p.Name == "") && (p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP)
}

// setEndpoints sets the address of Endpoints.
func setEndpoints(e *coreEndpoints) {
	if len(e.Subsets) == 1 && len(e.Subsets[0].Addresses) == 1 && e.Subsets[0].Addresses[0].IP == placeholderIP &&
		len(e.Subsets[0].Ports) == 1 && e.Subsets[0].Ports[0].Port == placeholderPort {
		return
	}
	e.Subsets = []endpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: placeholderIP}}, Ports: []corev1.EndpointPort{{Port: placeholderPort}},
	}}
}
