// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Of the EndpointSlices by which agents send connections and datagrams of a Gateway to backends. Agents from 1.20 on read the weight.
const (
	portSliceManager   = "cilium-operator"
	backendAnnotation  = "gateway.cilium.io/backend-service"
	portAnnotation     = "gateway.cilium.io/backend-port"
	weightAnnotation   = "service.cilium.io/weight"
	balancerAnnotation = "service.cilium.io/lb-algorithm"
	balancerOfWeights  = "maglev" // the only one by which agents follow weights
)

// backendSlice is an EndpointSlice of a Service.
type backendSlice struct {
	backendSliceMeta `json:"metadata"`
	slim.Cut         `json:"-"`
	AddressType      slim.String                `json:"addressType"`
	Endpoints        []discoveryv1.Endpoint     `json:"endpoints"`
	Ports            []discoveryv1.EndpointPort `json:"ports"`
}

// CutDown implements slim.Cutter.
func (s *backendSlice) CutDown() {
	s.Labels, s.Endpoints, s.Ports = s.Labels.Only(discoveryv1.LabelServiceName), nil, nil
}

// Trim implements slim.Trimmer: agents use the first address of an endpoint alone.
func (s *backendSlice) Trim() {
	for i, e := range s.Endpoints {
		if len(e.Addresses) > 1 {
			s.Endpoints[i].Addresses = slices.Clone(e.Addresses[:1])
		}
	}
}

type backendSliceMeta struct {
	slim.Meta
	Labels            slim.Labels `json:"labels"`
	DeletionTimestamp slim.Time   `json:"deletionTimestamp"`
}

// portSlice is an EndpointSlice of the Service of a Gateway.
type portSlice struct {
	portSliceMeta `json:"metadata"`
	slim.Cut      `json:"-"`
	AddressType   slim.String                `json:"addressType"`
	Endpoints     []discoveryv1.Endpoint     `json:"endpoints"`
	Ports         []discoveryv1.EndpointPort `json:"ports"`
}

// CutDown implements slim.Cutter: the Gateway stays.
func (s *portSlice) CutDown() {
	s.Labels, s.Annotations, s.Endpoints, s.Ports = slim.Labels{}, slim.Labels{}, nil, nil
}

type portSliceMeta struct {
	slim.Meta
	Labels      slim.Labels `json:"labels"`
	Annotations slim.Labels `json:"annotations"`
	Controller  slim.Owner  `json:"ownerReferences"`
}

var (
	sliceKind = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")

	backendSlices = stream.Core[backendSlice, discoveryv1.EndpointSlice](sliceKind).MatchingLabels(discoveryv1.LabelServiceName)
	portSlices    = stream.Core[portSlice, discoveryv1.EndpointSlice](sliceKind).MatchingLabels(gatewayLabel + "," + discoveryv1.LabelManagedBy + "=" + portSliceManager)

	slicesByService = stream.NewIndex("service", func(s *backendSlice, add func(slim.Key)) { add(s.service()) })
	slicesByGateway = stream.NewIndex("gateway", func(s *portSlice, add func(slim.Key)) {
		if s.Controller.Kind() == route.KindGateway {
			add(slim.Key{Namespace: s.Namespace.String(), Name: s.Controller.Name()})
		}
	})
)

func (s *backendSlice) service() slim.Key {
	return slim.Key{Namespace: s.Namespace.String(), Name: s.Labels.Get(discoveryv1.LabelServiceName)}
}

// portTo is a backend that a port of the Service of a Gateway leads to.
type portTo struct {
	at listener.ProtocolPort
	route.PortBackend
}

// portPlan plans the EndpointSlices of a Gateway.
type portPlan struct {
	gateway  *gateway
	backends []portTo
	// portName is the name of a port of a Service; ok is false if it has none of that number and protocol.
	portName func(slim.Key, listener.ProtocolPort) (name string, ok bool)
	slicesOf func(slim.Key) []*backendSlice
	// isHidden reports whether it is not known which endpoints a Service has: what leads to them stays.
	isHidden func(slim.Key) bool
	has      []*portSlice
	kept     []listener.ProtocolPort // of listeners that are not served here: what leads to them stays (GW-49)
}

// isKept reports whether an EndpointSlice leads to a port that is not served here, or to endpoints that are not known.
func (p portPlan) isKept(s *portSlice) bool {
	namespace, name, _ := strings.Cut(s.Annotations.Get(backendAnnotation), "/")
	return p.isHidden(slim.Key{Namespace: namespace, Name: name}) || p.isUnserved(s)
}

func (p portPlan) isUnserved(s *portSlice) bool {
	return slices.ContainsFunc(p.kept, func(at listener.ProtocolPort) bool {
		return slices.ContainsFunc(s.Ports, func(port discoveryv1.EndpointPort) bool { return nameOf(port.Name) == servicePort(at).Name })
	})
}

// sliceKey is what there is one EndpointSlice for.
type sliceKey struct {
	service slim.Key
	port    listener.ProtocolPort // of that
	family  discoveryv1.AddressType
	number  int32 // at the endpoints; 0 for those of a Service without any
}

// name is that of the EndpointSlice, as the original has it. Where endpoints have several numbers for a port, the others have theirs in it.
// hash is how many bytes of the hash of the port it has.
func (k sliceKey) name(service string, first bool, hash int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s|%d|%s", k.service.Namespace, k.service.Name, k.port.Port, k.port.Protocol))
	name := fmt.Sprintf("%s-%x-%s", service, sum[:hash], strings.ToLower(string(k.family)))
	if !first {
		name += "-" + strconv.Itoa(int(k.number))
	}
	return envoy.Shorten(name)
}

// How many bytes of a hash are in names: as many as the original has, and so many that no two ports have one name, whatever tenants try.
const (
	shortHash = 4
	longHash  = 20
)

// families are those of EndpointSlices that lead to ports.
var families = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}

// desired are the EndpointSlices that are to be, by name. Of two ports whose names would be one, the second has a longer one.
func (p portPlan) desired() map[string]*discoveryv1.EndpointSlice {
	wanted, of, service := map[string]*discoveryv1.EndpointSlice{}, map[string]sliceKey{}, serviceKey(p.gateway.Key()).Name
	for _, to := range p.backends {
		if p.isHidden(to.Service) {
			continue
		}
		for _, family := range families {
			for i, key := range p.numbers(to, family) {
				name := key.name(service, i == 0, shortHash)
				if other, taken := of[name]; taken && other != key {
					name = key.name(service, i == 0, longHash)
				}
				if wanted[name] == nil {
					wanted[name], of[name] = p.newSlice(name, to, key), key
				}
				addPort(wanted[name], to.at, key.number)
			}
		}
	}
	return wanted
}

// maxNumbers is how many numbers of a port at the endpoints of a backend have an EndpointSlice: the lowest. Pods of a rollout have two.
const maxNumbers = 16

// numbers are the EndpointSlices for a backend in a family: one for each number that the port has at endpoints, or the one that is there,
// without endpoints.
func (p portPlan) numbers(to portTo, family discoveryv1.AddressType) (keys []sliceKey) {
	key := sliceKey{service: to.Service, port: listener.ProtocolPort{Protocol: to.at.Protocol, Port: to.Port}, family: family}
	portName, exists := p.portName(to.Service, key.port)
	if exists {
		for _, s := range p.slicesOf(to.Service) {
			if number, ok := s.number(portName, key); ok {
				key.number = number
				keys = append(keys, key)
			}
		}
	}
	slices.SortFunc(keys, func(a, b sliceKey) int { return cmp.Compare(a.number, b.number) })
	if keys = slices.Compact(keys); len(keys) > 0 {
		return keys[:min(len(keys), maxNumbers)]
	}
	key.number = 0
	name := key.name(serviceKey(p.gateway.Key()).Name, true, shortHash)
	if slices.ContainsFunc(p.has, func(s *portSlice) bool { return s.Name == name }) { // it stays, without endpoints
		return []sliceKey{key}
	}
	return nil
}

// number is the number of a port at the endpoints of an EndpointSlice.
func (s *backendSlice) number(portName string, key sliceKey) (number int32, ok bool) {
	if s.AddressType.String() != string(key.family) || !s.DeletionTimestamp.IsZero() {
		return 0, false
	}
	for _, port := range s.Ports {
		if port.Port != nil && nameOf(port.Name) == portName && protocolOf(port.Protocol) == key.port.Protocol {
			return *port.Port, true
		}
	}
	return 0, false
}

func nameOf(of *string) string {
	if of == nil {
		return ""
	}
	return *of
}

func protocolOf(p *corev1.Protocol) corev1.Protocol {
	if p == nil {
		return corev1.ProtocolTCP
	}
	return *p
}

// newSlice is an EndpointSlice without ports.
func (p portPlan) newSlice(sliceName string, to portTo, key sliceKey) *discoveryv1.EndpointSlice {
	g := p.gateway
	labels, annotations := metadataOf(g)
	labels[discoveryv1.LabelServiceName], labels[discoveryv1.LabelManagedBy] = serviceKey(g.Key()).Name, portSliceManager
	annotations[backendAnnotation] = to.Service.Namespace + "/" + to.Service.Name
	annotations[portAnnotation] = strconv.Itoa(int(to.Port))
	if to.Weight != nil {
		annotations[weightAnnotation] = strconv.Itoa(min(int(*to.Weight), math.MaxUint16))
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: g.Namespace.String(), Name: sliceName, Labels: labels, Annotations: annotations, OwnerReferences: []metav1.OwnerReference{*ownerOf(g)}},
		AddressType: key.family, Endpoints: p.endpoints(key),
	}
}

// maxEndpoints is how many an EndpointSlice may have.
const maxEndpoints = 1000

// endpoints are those of a Service that have a number for a port, sorted by address.
func (p portPlan) endpoints(key sliceKey) (all []discoveryv1.Endpoint) {
	portName, exists := p.portName(key.service, key.port)
	if !exists {
		return nil
	}
	seen := map[string]bool{}
	for _, s := range p.slicesOf(key.service) {
		if number, ok := s.number(portName, key); !ok || number != key.number {
			continue
		}
		for _, e := range s.Endpoints {
			if len(e.Addresses) > 0 && !seen[e.Addresses[0]] {
				seen[e.Addresses[0]] = true
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b discoveryv1.Endpoint) int { return cmp.Compare(a.Addresses[0], b.Addresses[0]) })
	return all[:min(len(all), maxEndpoints)]
}

// addPort has a port of the Service of the Gateway lead to a number at the endpoints.
func addPort(to *discoveryv1.EndpointSlice, at listener.ProtocolPort, number int32) {
	portName := servicePort(at).Name
	if slices.ContainsFunc(to.Ports, func(p discoveryv1.EndpointPort) bool { return nameOf(p.Name) == portName }) {
		return
	}
	port := discoveryv1.EndpointPort{Name: &portName, Protocol: &at.Protocol, Port: &number}
	if number == 0 {
		port.Port = new(at.Port)
	}
	to.Ports = append(to.Ports, port)
}

// differs reports whether an EndpointSlice is not as it is to be. What others have added to its labels and annotations stays.
func (s *portSlice) differs(want *discoveryv1.EndpointSlice) bool {
	for key, value := range want.Labels {
		if has, exists := s.Labels.Lookup(key); !exists || has != value {
			return true
		}
	}
	for key, value := range want.Annotations {
		if has, exists := s.Annotations.Lookup(key); !exists || has != value {
			return true
		}
	}
	return !equality.Semantic.DeepEqual(s.Endpoints, want.Endpoints) || len(want.Endpoints) > 0 && !equality.Semantic.DeepEqual(s.Ports, want.Ports)
}

// writePorts writes the EndpointSlices of the ports of a Gateway, in place of a placeholder. Nothing is deleted before the others are written,
// nor while it is not known which endpoints there are. more is set if there are more than a turn has.
func (c *controller) writePorts(ctx context.Context, g *gateway, plan *gatewayPlan, placed *envoyres.Placed[duty], more *bool) error {
	if len(plan.backends) == 0 {
		c.backends.Drop(g.Key())
		if !placed.HasSlices(g.UID.API()) {
			c.portSlices.Drop(g.Key())
			c.occupied.Keep(g.Key(), nil)
			return nil
		}
	}
	has, of := c.portSlices.Need(g.Key()), (*stream.Store[backendSlice])(nil)
	if len(plan.backends) > 0 {
		if of = c.backends.Need(g.Key()); of == nil {
			return nil
		}
	}
	if has == nil {
		return nil
	}
	p := portPlan{
		gateway: g, backends: plan.backends, kept: unserved(plan.listeners), portName: c.portName,
		slicesOf: func(key slim.Key) []*backendSlice { return slices.Collect(stream.ByIndex(of, slicesByService, key)) },
		isHidden: func(key slim.Key) bool { return c.hidesPorts(key) || of != nil && hidesEndpoints(of, key) },
	}
	for s := range stream.ByIndex(has, slicesByGateway, g.Key()) {
		if s.Controller.Reference().UID == g.UID {
			p.has = append(p.has, s)
		}
	}
	err := c.bringPorts(ctx, p, more)
	if err != nil || *more || len(plan.backends) == 0 {
		return err
	}
	return placed.Remove(k8s.WithManySources(ctx), c.Client, serviceKey(g.Key()), g.UID.API())
}

// hidesEndpoints reports whether an EndpointSlice of a Service is too large, or there is one in its namespace that could not be decoded: that may be
// one of the Service.
func hidesEndpoints(all *stream.Store[backendSlice], of slim.Key) bool {
	for s := range stream.ByIndex(all, slicesByService, of) {
		if s.IsCut() {
			return true
		}
	}
	return slices.ContainsFunc(all.Unreadable(), func(key slim.Key) bool { return key.Namespace == of.Namespace })
}

// hidesPorts reports whether it is not known which ports a Service has.
func (c *controller) hidesPorts(of slim.Key) bool {
	s, exists := c.services.Get(of)
	return exists && s.hidesPorts() || !exists && c.services.Hides(of)
}

// portName is the name of a port of a Service.
func (c *controller) portName(of slim.Key, port listener.ProtocolPort) (name string, ok bool) {
	s, exists := c.services.Get(of)
	if !exists {
		return "", false
	}
	for _, p := range s.Spec.Ports {
		if p.Port == port.Port && p.Protocol.String() == string(port.Protocol) {
			return p.Name.String(), true
		}
	}
	return "", false
}

// slicesPerPass is how many EndpointSlices of a Gateway are written, or deleted, before others have their turn; afterPass is the pause, in which
// the watch shows those.
const (
	slicesPerPass = 64
	afterPass     = 100 * time.Millisecond
)

// inTurn makes writes in order until there were as many as a turn has, and sets more if some are left. What fails does not count, and keeps nothing from
// the others.
func inTurn(writes []func() error, more *bool) error {
	var errs []error
	done := 0
	for _, write := range writes {
		if done == slicesPerPass {
			*more = true
			break
		}
		if err := write(); err != nil {
			errs = append(errs, err)
		} else {
			done++
		}
	}
	return errors.Join(errs...)
}

// bringPorts brings EndpointSlices to their plan, or does so in part.
func (c *controller) bringPorts(ctx context.Context, p portPlan, more *bool) error {
	wanted := p.desired()
	var writes, deletes []func() error
	many := k8s.WithManySources(ctx) // slices of a Gateway are made of routes of many namespaces
	for _, is := range p.has {
		want := wanted[is.Name]
		delete(wanted, is.Name)
		if is.IsCut() || want == nil && p.isKept(is) { // it is not known what it leads to
			continue
		}
		if want == nil || string(want.AddressType) != is.AddressType.String() {
			deletes = append(deletes, func() error { return k8s.Delete(many, c.Client, is.ref()) })
		} else if is.differs(want) {
			writes = append(writes, func() error { return c.updatePort(ctx, is, want) })
		}
	}
	gateway := p.gateway.Key()
	c.occupied.Keep(gateway, func(name string) bool { return wanted[name] != nil })
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		writes = append(writes, func() error { return c.createPort(ctx, gateway, wanted[name]) })
	}
	err := inTurn(writes, more)
	if *more || !isOccupiedByOthers(err) {
		return err
	}
	return errors.Join(err, inTurn(deletes, more))
}

func (s *portSlice) ref() k8s.Ref {
	return k8s.Ref{Resource: sliceKind, Namespace: s.Namespace.String(), Name: s.Name, UID: s.UID.API()}
}

func (c *controller) updatePort(ctx context.Context, is *portSlice, want *discoveryv1.EndpointSlice) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return err
	}
	ref := is.ref()
	_, _, err = c.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		labels, annotations := u.GetLabels(), u.GetAnnotations()
		if labels == nil {
			labels = map[string]string{}
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		maps.Copy(labels, want.Labels)
		maps.Copy(annotations, want.Annotations)
		u.SetLabels(labels)
		u.SetAnnotations(annotations)
		u.Object["endpoints"], u.Object["ports"] = content["endpoints"], content["ports"]
		return nil
	})
	if k8s.IsNotFound(err, ref) {
		return reconcile.Recheck()
	}
	return err
}

// backendChanged is the Gateways of the routes that have the Service of an EndpointSlice as a backend.
func (c *controller) backendChanged(ch stream.Change[backendSlice]) []slim.Key {
	keys := &keySet{}
	for _, r := range c.routesTo([]slim.Key{ch.Object.service()}) {
		if !r.IsHTTP() && r.Kind != route.KindTLS {
			keys.add(c.plannersOf(r.ParentKeys())...)
		}
	}
	return keys.all
}

// portSliceChanged is the Gateway of an EndpointSlice.
func (c *controller) portSliceChanged(ch stream.Change[portSlice]) (keys []slim.Key) {
	if owner := ch.Object.Controller; owner.Kind() == route.KindGateway {
		key := slim.Key{Namespace: ch.Key.Namespace, Name: owner.Name()}
		if ch.Kind == stream.Delete {
			c.occupied.Free(key, ch.Key.Name)
		}
		keys = append(keys, key)
	}
	return keys
}
