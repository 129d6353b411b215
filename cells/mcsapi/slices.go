// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

const (
	copyManager       = "endpointslice-local-mcsapi-controller.cilium.io"
	meshManager       = "endpointslice-mesh-controller.cilium.io"
	kubernetesManager = "endpointslice-controller.k8s.io"
	mirroringManager  = "endpointslicemirroring-controller.k8s.io"
	copyLabel         = "service.cilium.io/local-endpointslice"
)

// endpointSlice is an EndpointSlice of a Service, of Kubernetes or of its user.
type endpointSlice struct {
	sliceMeta   `json:"metadata"`
	slim.Cut    `json:"-"`
	AddressType slim.String                `json:"addressType"`
	Endpoints   []discoveryv1.Endpoint     `json:"endpoints"`
	Ports       []discoveryv1.EndpointPort `json:"ports"`
}

// CutDown implements slim.Cutter.
func (s *endpointSlice) CutDown() {
	s.Labels, s.Owners = s.Labels.Only(discoveryv1.LabelServiceName, discoveryv1.LabelManagedBy), nil
	s.Endpoints, s.Ports = nil, nil
}

type sliceMeta struct {
	slim.Meta
	Labels            slim.Labels           `json:"labels"`
	Owners            []slim.OwnerReference `json:"ownerReferences"`
	DeletionTimestamp slim.Time             `json:"deletionTimestamp"`
}

// sliceCopy is an EndpointSlice of a derived Service that is a copy of one of the Service.
type sliceCopy endpointSlice

// CutDown implements slim.Cutter: the name that it is of stays.
func (s *sliceCopy) CutDown() {
	s.Labels, s.Owners = s.Labels.Only(mcsv1alpha1.LabelServiceName), nil
	s.Endpoints, s.Ports = nil, nil
}

var (
	// Copies are among them: a name is reconciled again when both streams have shown what was written.
	endpointSlices = stream.Core[endpointSlice, discoveryv1.EndpointSlice](discoveryv1.SchemeGroupVersion.WithResource("endpointslices")).
			MatchingLabels(discoveryv1.LabelServiceName + "," + discoveryv1.LabelManagedBy + "!=" + meshManager)
	sliceCopies = stream.Core[sliceCopy, discoveryv1.EndpointSlice](discoveryv1.SchemeGroupVersion.WithResource("endpointslices")).
			MatchingLabels(discoveryv1.LabelManagedBy + "=" + copyManager)

	byService = stream.NewIndex("service", func(s *endpointSlice, add func(slim.Key)) { add(s.service()) })
	byName    = stream.NewIndex("name", func(s *sliceCopy, add func(slim.Key)) { add(s.of()) })
)

// mayHaveEndpoints reports whether an EndpointSlice has endpoints, or is too large for them to be known.
func (s *endpointSlice) mayHaveEndpoints() bool { return s.IsCut() || len(s.Endpoints) > 0 }

// service is the Service of an EndpointSlice.
func (s *endpointSlice) service() slim.Key {
	return slim.Key{Namespace: s.Namespace.String(), Name: s.Labels.Get(discoveryv1.LabelServiceName)}
}

func (s *endpointSlice) manager() string { return s.Labels.Get(discoveryv1.LabelManagedBy) }

// of is the name of the service that a copy is of.
func (s *sliceCopy) of() slim.Key {
	return slim.Key{Namespace: s.Namespace.String(), Name: s.Labels.Get(mcsv1alpha1.LabelServiceName)}
}

// localSlices are the EndpointSlices that the endpoints of this cluster are in.
type localSlices struct {
	isKnown    bool             // sources and kubernetes are all that there are, and no source is cut
	sources    []*endpointSlice // of the Service, by name
	kubernetes []*endpointSlice // of the derived Service, made by Kubernetes
	copies     []*sliceCopy     // of the derived Service
}

// localSlices reads the EndpointSlices of a name. Those that are not copies are read where they are needed.
func (c *controller) localSlices(s *state) (l localSlices) {
	for has := range stream.ByIndex(c.copies, byName, s.key) {
		l.copies = append(l.copies, has)
	}
	if !s.needsSlices(len(l.copies) > 0) {
		c.slices.Drop(s.key)
		return l
	}
	store := c.slices.Need(s.key)
	if store == nil || slices.ContainsFunc(store.Unreadable(), func(key slim.Key) bool { return key.Namespace == s.key.Namespace }) {
		return l
	}
	l.isKnown = true
	for of := range stream.ByIndex(store, byService, s.key) {
		if of.IsCut() { // copies stay as they are
			l.isKnown = false
		}
		l.sources = append(l.sources, of)
	}
	slices.SortFunc(l.sources, func(a, b *endpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	for of := range stream.ByIndex(store, byService, derivedKey(s.key)) {
		if m := of.manager(); m == kubernetesManager || m == mirroringManager {
			l.kubernetes = append(l.kubernetes, of)
		}
	}
	return l
}

// needsSlices reports whether it matters which EndpointSlices there are: for copies, or on the way to a selector or away from one.
func (s *state) needsSlices(hasCopies bool) bool {
	if s.derived == nil || !s.isOwned() {
		return false
	}
	selects := len(s.wantedSelector()) > 0
	return s.copiesSlices() || selects && hasCopies || !selects && s.derived.Spec.Selector.Len() > 0
}

// copiesSlices reports whether the endpoints of this cluster are those of copies of EndpointSlices: where the release has it so, and
// where there is no selector by which Kubernetes makes them.
func (s *state) copiesSlices() bool {
	return s.published != nil && !s.noCopies && s.derived != nil && s.isOwned() && (s.copiesAll() || s.service.Spec.Selector.Len() == 0)
}

// copiesAll reports whether derived Services have copies of EndpointSlices in place of a selector.
func (s *state) copiesAll() bool { return !s.noCopies && release.CopiedEndpoints.In(s.release) }

// newCopy is the copy of an EndpointSlice for the derived Service as it is to be; nil if that leads to none of its ports, or
// has another address type.
func (s *state) newCopy(of *endpointSlice, d *corev1.Service) *discoveryv1.EndpointSlice {
	ports := s.copiedPorts(of.Ports, d.Spec.Ports)
	if len(ports) == 0 && len(of.Ports) > 0 || !isSupported(d, of.AddressType.String()) {
		return nil
	}
	c := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.key.Namespace, Name: s.copyName(of), Labels: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: s.derived.Name, UID: s.derived.UID.API(), Controller: new(true), BlockOwnerDeletion: new(true)}},
		},
		AddressType: discoveryv1.AddressType(of.AddressType.String()), Endpoints: of.Endpoints, Ports: ports,
	}
	maps.Copy(c.Labels, d.Labels)
	c.Labels[discoveryv1.LabelServiceName], c.Labels[discoveryv1.LabelManagedBy] = s.derived.Name, copyManager
	c.Labels[mcsv1alpha1.LabelServiceName], c.Labels[mcsv1alpha1.LabelSourceCluster] = s.key.Name, s.cluster
	if c.Labels[copyLabel] = of.Name; len(validation.IsValidLabelValue(of.Name)) > 0 {
		c.Labels[copyLabel] = hashed(of.Name)
	}
	return c
}

// copyName is the name of a copy: that of the EndpointSlice, with the name of the derived Service in place of the Service's. One that
// does not begin with it, or would be too long, is hashed.
func (s *state) copyName(of *endpointSlice) string {
	rest, begins := strings.CutPrefix(of.Name, s.key.Name)
	if name := s.derived.Name + rest; begins && len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	return s.derived.Name + "-" + hashed(of.Name)
}

func hashed(name string) string {
	sum := sha256.Sum256([]byte(name))
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:10])
}

// copiedPorts are the ports of an EndpointSlice that the derived Service leads to. Where the release has it so, those are the ones that
// it has with the number and the protocol of the Service: another export may stand for others of the name.
func (s *state) copiedPorts(of []discoveryv1.EndpointPort, derived []corev1.ServicePort) []discoveryv1.EndpointPort {
	if !release.AgreedPortsAlone.In(s.release) {
		return of
	}
	var ports []discoveryv1.EndpointPort
	leads, has := portsByName(derived), portsByName(s.service.Spec.Ports)
	for _, p := range of {
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if leads[name] != (portNumber{}) && leads[name] == has[name] {
			ports = append(ports, p)
		}
	}
	return ports
}

type portNumber struct {
	number   int32
	protocol corev1.Protocol
}

// portsByName are ports by their names, of several with one name the first.
func portsByName(ports []corev1.ServicePort) map[string]portNumber {
	all := make(map[string]portNumber, len(ports))
	for _, p := range ports {
		if _, exists := all[p.Name]; !exists {
			all[p.Name] = portNumber{p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP)}
		}
	}
	return all
}

// differs reports whether a copy is not as it is to be.
func (s *sliceCopy) differs(want *discoveryv1.EndpointSlice) bool {
	owner := want.OwnerReferences[0]
	return !maps.Equal(s.Labels.Map(), want.Labels) || len(s.Owners) != 1 || s.Owners[0].UID.API() != owner.UID || !s.Owners[0].Controller ||
		!equality.Semantic.DeepEqual(s.Endpoints, want.Endpoints) || !equality.Semantic.DeepEqual(s.Ports, want.Ports)
}

// copyPlan is what to do with the copies of EndpointSlices.
type copyPlan struct {
	undecided bool // what there is stays, and what is not there is not missed
	missing   []*discoveryv1.EndpointSlice
	changed   []copyChange
	surplus   []*sliceCopy // deleted when the others are written, so that no endpoint is missing meanwhile
}

type copyChange struct {
	is   *sliceCopy
	want *discoveryv1.EndpointSlice
}

// planCopies decides about the copies of EndpointSlices, for the derived Service as it is to be.
func (s *state) planCopies(d *corev1.Service) (p copyPlan) {
	switch copies := d != nil && s.copiesSlices(); {
	case s.mayBeExported(), copies && !s.local.isKnown, !copies && len(s.wantedSelector()) > 0 && !s.isServed():
		return copyPlan{undecided: true}
	case copies:
		p = s.planWanted(d)
	default:
		p.surplus = s.local.copies
	}
	if s.isStale { // an earlier leader may have copied what is not seen yet
		p.surplus = nil
	}
	return p
}

// planWanted decides about the copies where there are to be some.
func (s *state) planWanted(d *corev1.Service) (p copyPlan) {
	copies, names := map[string]*sliceCopy{}, map[string]bool{}
	for _, has := range s.local.copies {
		copies[has.Name] = has
	}
	for _, of := range s.local.sources {
		w := s.newCopy(of, d)
		if w == nil || names[w.Name] {
			continue
		}
		names[w.Name] = true
		switch has := copies[w.Name]; {
		case has == nil:
			p.missing = append(p.missing, w)
		case has.IsCut(): // it stays as it is
		case has.AddressType.String() != string(w.AddressType): // which cannot be changed: it is created again when it is gone
			p.surplus = append(p.surplus, has)
		case has.differs(w):
			p.changed = append(p.changed, copyChange{has, w})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(copies)) {
		if !names[name] {
			p.surplus = append(p.surplus, copies[name])
		}
	}
	return p
}

// bringSlices brings the copies of EndpointSlices to their plan. What is new is written first: nothing is deleted when that has failed. A copy whose name
// another EndpointSlice has is not waited for.
func (c *controller) bringSlices(ctx context.Context, s *state, d *corev1.Service) error {
	p := s.planCopies(d)
	if p.undecided {
		s.occupied = c.occupied.Others(s.key)
		return nil
	}
	var errs []error
	for _, change := range p.changed {
		errs = append(errs, c.updateCopy(ctx, change.is, change.want))
	}
	err := c.createCopies(ctx, s, p.missing)
	c.reportOccupied(s)
	if err := errors.Join(append(errs, err)...); err != nil {
		return s.withoutPermission(err)
	}
	for _, surplus := range p.surplus {
		errs = append(errs, s.withoutPermission(k8s.Delete(ctx, c.Client, surplus.ref())))
	}
	return errors.Join(errs...)
}

// deniesCopies reports whether the role does not allow to write EndpointSlices of what this cluster exports.
func (c *controller) deniesCopies(s *state) bool {
	return s.published != nil && c.denies(s, "create", k8s.Ref{Resource: sliceCopies.Resource(), Namespace: s.key.Namespace})
}

func (s *sliceCopy) ref() k8s.Ref {
	return k8s.Ref{Resource: sliceCopies.Resource(), Namespace: s.Namespace.String(), Name: s.Name, UID: s.UID.API()}
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

// sliceChanged is the name of the Service of an EndpointSlice, or the one that the Service is derived of, where it matters.
func (c *controller) sliceChanged(ch stream.Change[endpointSlice]) (keys []slim.Key) {
	key := ch.Object.service()
	if c.slices.Needs(key) {
		keys = append(keys, key)
	}
	c.mu.Lock()
	of, known := c.names[key]
	c.mu.Unlock()
	if known && c.slices.Needs(of) {
		keys = append(keys, of)
	}
	return keys
}

func (*controller) copyChanged(ch stream.Change[sliceCopy]) []slim.Key {
	return []slim.Key{ch.Object.of()}
}

func (c *controller) slicesOnDemand() *reconcile.OnDemand[endpointSlice] { return &c.slices }
