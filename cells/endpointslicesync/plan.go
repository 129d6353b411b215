// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// group is what all endpoints of a slice have in common.
type group struct {
	family discoveryv1.AddressType
	ports  string // text of portText
}

// plan is what is to be done about the slices of a Service in one remote cluster.
type plan struct {
	create []*discoveryv1.EndpointSlice
	update []change
	remove []*meshSlice

	slices, endpoints int // that are desired
	added, removed    int // endpoints
	left              int // endpoints without a slice, as there are too many

	isCut bool // it is not known which endpoints a slice has, so that all of them stay
}

// bounds are how many endpoints a slice has, and how many slices of a cluster a Service, 0 for any number. New slices do not have the names that are
// occupied.
type bounds struct {
	endpoints, slices int
	occupied          []string
}

// grouped are slices of a group.
type grouped struct {
	of    group
	fills []fill
}

// change is a slice that differs from what it is to be.
type change struct {
	is   *meshSlice
	want *discoveryv1.EndpointSlice
}

// fill is the endpoints that a slice is to have.
type fill struct {
	is      *meshSlice // nil: a new one
	ips     []string
	changed bool
}

// planFor plans the slices of a Service in a cluster. backends is nil if it has none there; existing are the slices of both. These stay if
// there are more than the bound: it is about new ones.
func planFor(s *service, cluster string, backends *clustermesh.Service, existing []*meshSlice, most bounds) plan {
	var p plan
	desired := groupsOf(s, backends)
	if len(desired) > 0 && slices.ContainsFunc(existing, func(s *meshSlice) bool { return s.IsCut() }) {
		return plan{slices: len(existing), isCut: true}
	}
	names := map[string]bool{}
	for _, name := range most.occupied {
		names[name] = true
	}
	byGroup := map[group][]*meshSlice{}
	for _, slice := range slices.SortedFunc(slices.Values(existing), func(a, b *meshSlice) int { return cmp.Compare(a.Name, b.Name) }) {
		names[slice.Name] = true
		g := groupOf(slice)
		if len(desired[g]) == 0 {
			p.drop(slice)
			continue
		}
		byGroup[g] = append(byGroup[g], slice)
	}
	var all []grouped
	for _, g := range slices.SortedFunc(maps.Keys(desired), compareGroups) {
		p.endpoints += len(desired[g])
		all = append(all, grouped{g, distribute(desired[g], byGroup[g], most.endpoints)})
	}
	p.bound(all, most.slices)
	for _, g := range all {
		for _, f := range g.fills {
			p.add(s, cluster, backends, g.of, f, names)
		}
	}
	return p
}

// bound leaves out new slices that are too many.
func (p *plan) bound(all []grouped, most int) {
	n := 0
	for _, g := range all {
		for _, f := range g.fills {
			if f.is != nil && len(f.ips) > 0 {
				n++
			}
		}
	}
	for i := range all {
		all[i].fills = slices.DeleteFunc(all[i].fills, func(f fill) bool {
			if f.is != nil {
				return false
			}
			if n++; most <= 0 || n <= most {
				return false
			}
			p.left += len(f.ips)
			return true
		})
	}
	p.endpoints -= p.left
}

// add plans one slice.
func (p *plan) add(s *service, cluster string, backends *clustermesh.Service, g group, f fill, names map[string]bool) {
	if len(f.ips) == 0 {
		p.drop(f.is)
		return
	}
	p.slices++
	want := newSlice(s, cluster, backends, g, f.ips)
	if f.is == nil {
		want.Name = freeName(want, names)
		names[want.Name] = true
		p.create = append(p.create, want)
		p.added += len(f.ips)
		return
	}
	if differs(f.is, want) {
		p.update = append(p.update, change{f.is, want})
		had := addresses(f.is)
		for _, ip := range f.ips {
			if !had[ip] {
				p.added++
			}
			delete(had, ip)
		}
		p.removed += len(had)
	}
}

func (p *plan) drop(slice *meshSlice) {
	p.remove = append(p.remove, slice)
	p.removed += len(slice.Endpoints)
}

// groupsOf returns the IPs of a service by group.
func groupsOf(s *service, backends *clustermesh.Service) map[group]map[string]bool {
	groups := map[group]map[string]bool{}
	if s == nil || backends == nil {
		return groups
	}
	for text, ports := range backends.Backends {
		ip, err := netip.ParseAddr(text)
		if ip = ip.Unmap(); err != nil || !isEndpoint(ip) {
			continue
		}
		g := group{discoveryv1.AddressTypeIPv6, portText(validPorts(ports))}
		if ip.Is4() {
			g.family = discoveryv1.AddressTypeIPv4
		}
		if !s.hasFamily(g.family) {
			continue
		}
		if groups[g] == nil {
			groups[g] = map[string]bool{}
		}
		groups[g][ip.String()] = true
	}
	return groups
}

// isEndpoint reports whether an address is one that pods can have. The API server refuses a whole slice for some others.
func isEndpoint(ip netip.Addr) bool {
	return ip.Zone() == "" && ip.IsGlobalUnicast()
}

// maxPorts is how many ports of a backend an EndpointSlice has. The API server accepts so many of a Service that people write, and refuses 20,000.
const maxPorts = 1000

// validPorts are those that the API server accepts, the first by name.
func validPorts(ports clustermesh.Ports) clustermesh.Ports {
	valid := clustermesh.Ports{}
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		p := ports[name]
		if len(valid) == maxPorts {
			break
		}
		switch corev1.Protocol(p.Protocol) {
		case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
			if p.Port != 0 && (name == "" || len(validation.IsDNS1123Label(name)) == 0) {
				valid[name] = p
			}
		}
	}
	return valid
}

func compareGroups(a, b group) int {
	return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.ports, b.ports))
}

// portText is ports as text, a line for each by name.
func portText(ports clustermesh.Ports) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		fmt.Fprintf(&b, "%s\t%s\t%d\n", name, ports[name].Protocol, ports[name].Port)
	}
	return b.String()
}

// portsOf is the inverse of portText.
func portsOf(text string) []discoveryv1.EndpointPort {
	ports := []discoveryv1.EndpointPort{}
	for line := range strings.Lines(text) {
		part := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		number, _ := strconv.ParseUint(part[2], 10, 16) // written by portText
		ports = append(ports, discoveryv1.EndpointPort{Name: new(part[0]), Protocol: new(corev1.Protocol(part[1])), Port: new(int32(number))})
	}
	return ports
}

// groupOf is the group of a slice.
func groupOf(slice *meshSlice) group {
	ports := clustermesh.Ports{}
	for _, p := range slice.Ports {
		number := uint16(0)
		if p.Port != nil {
			number = uint16(*p.Port)
		}
		ports[p.Name.String()] = clustermesh.Port{Protocol: p.Protocol.String(), Port: number}
	}
	return group{discoveryv1.AddressType(slice.AddressType.String()), portText(ports)}
}

func addresses(slice *meshSlice) map[string]bool {
	ips := map[string]bool{}
	for _, e := range slice.Endpoints {
		for _, ip := range e.Addresses {
			ips[ip] = true
		}
	}
	return ips
}

// distribute decides which slice has which endpoints, as Kubernetes does: an endpoint stays in its slice; what is new fills
// slices that are written anyway, then new ones, and the rest goes to the fullest slice that it fits into.
func distribute(ips map[string]bool, existing []*meshSlice, most int) []fill {
	left := maps.Clone(ips)
	fills := make([]fill, 0, len(existing)+1)
	for _, slice := range existing {
		f := fill{is: slice}
		for _, e := range slice.Endpoints {
			if len(e.Addresses) == 1 && left[e.Addresses[0]] && len(f.ips) < most {
				f.ips = append(f.ips, e.Addresses[0])
				delete(left, e.Addresses[0])
			}
		}
		f.changed = len(f.ips) != len(slice.Endpoints)
		fills = append(fills, f)
	}
	rest := slices.Sorted(maps.Keys(left))
	take := func(f *fill) {
		n := min(most-len(f.ips), len(rest))
		f.ips, rest = append(f.ips, rest[:n]...), rest[n:]
	}
	for i := range fills {
		if fills[i].changed {
			take(&fills[i])
		}
	}
	for len(rest) > 0 {
		if i := fullestFit(fills, len(rest), most); i >= 0 {
			take(&fills[i])
			continue
		}
		fills = append(fills, fill{changed: true})
		take(&fills[len(fills)-1])
	}
	return fills
}

// fullestFit returns the slice with the least space of those that n more fit into, or -1.
func fullestFit(fills []fill, n, most int) int {
	best := -1
	for i, f := range fills {
		if f.is != nil && most-len(f.ips) >= n && (best < 0 || len(f.ips) > len(fills[best].ips)) {
			best = i
		}
	}
	return best
}

// newSlice is a slice as it is to be, without a name.
func newSlice(s *service, cluster string, backends *clustermesh.Service, g group, ips []string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: s.Name + "-" + cluster + "-", Namespace: s.Namespace.String(), Labels: labelsOf(s, cluster),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: s.Name, UID: s.UID.API(), Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		AddressType: g.family,
		Ports:       portsOf(g.ports),
	}
	for _, ip := range ips {
		e := discoveryv1.Endpoint{
			Addresses:  []string{ip},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(cluster), Zone: new(cluster),
			TargetRef: &corev1.ObjectReference{APIVersion: "cilium.io", Kind: "store.ClusterService", Namespace: s.Namespace.String(), Name: targetName(ip)},
		}
		if hostname := backends.Hostnames[ip]; len(validation.IsDNS1123Label(hostname)) == 0 {
			e.Hostname = &hostname
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	return slice
}

// targetName is the name of the object that an endpoint refers to, in the form of the original. No such object exists.
func targetName(ip string) string { return "fake-pod-" + ip }

func labelsOf(s *service, cluster string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, s.Labels.Map())
	delete(labels, corev1.IsHeadlessService)
	if s.isHeadless() {
		labels[corev1.IsHeadlessService] = ""
	}
	labels[discoveryv1.LabelManagedBy], labels[discoveryv1.LabelServiceName], labels[clusterLabel] = manager, s.Name, cluster
	return labels
}

// freeName is a name for a new slice. It follows from the content, so that a create that is repeated, since its answer was
// lost, makes no second slice.
func freeName(slice *discoveryv1.EndpointSlice, taken map[string]bool) string {
	for n := 0; ; n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s %s %v %d", slice.Namespace, slice.GenerateName, slice.AddressType, slice.Endpoints[0].Addresses, n))
		prefix := slice.GenerateName[:min(len(slice.GenerateName), 253-suffixLength)]
		name := prefix + strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:suffixLength])
		if !taken[name] {
			return name
		}
	}
}

const suffixLength = 8

// differs reports whether a slice is not as it is to be.
func differs(is *meshSlice, want *discoveryv1.EndpointSlice) bool {
	return !maps.Equal(is.Labels.Map(), want.Labels) || !sameOwner(is.Owners, want.OwnerReferences[0]) ||
		!slices.EqualFunc(is.Endpoints, want.Endpoints, sameEndpoint)
}

func sameOwner(is []slim.OwnerReference, want metav1.OwnerReference) bool {
	return len(is) == 1 && is[0].UID.API() == want.UID && is[0].Controller && is[0].Name == want.Name && is[0].Kind.String() == want.Kind
}

func sameEndpoint(is endpoint, want discoveryv1.Endpoint) bool {
	hostname := ""
	if want.Hostname != nil {
		hostname = *want.Hostname
	}
	return slices.Equal(is.Addresses, want.Addresses) && is.Hostname == hostname &&
		is.NodeName.String() == *want.NodeName && is.Zone.String() == *want.Zone &&
		is.TargetRef.Name == want.TargetRef.Name && is.TargetRef.Kind.String() == want.TargetRef.Kind &&
		isTrue(is.Conditions.Ready) && isTrue(is.Conditions.Serving) && is.Conditions.Terminating != nil && !*is.Conditions.Terminating
}

func isTrue(b *bool) bool { return b != nil && *b }
