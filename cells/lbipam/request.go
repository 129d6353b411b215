// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/printable"
)

// request is what a Service wants.
type request struct {
	// ips are the requested addresses. Without any, one of each of families is wanted.
	ips      []netip.Addr
	families []alloc.Family
	// had are addresses that are requested beyond the bound, and that the Service has already: they stay. beyond is how many others there are. Where no
	// text of a request is an address, and it is not known what is meant, they are all that it has.
	had    []netip.Addr
	beyond int
	// kept are those of ips and had that the Service had when they were chosen.
	kept []netip.Addr
	// invalid is the first requested address that cannot be parsed, "" for none.
	invalid string

	sharing sharing
}

// maxInvalid is how much of a text that is no address a status shows.
const maxInvalid = 256

// requested are the texts of the addresses that a Service asks for, and the addresses: not valid ones where a text is none.
func requested(o *serviceObject) iter.Seq2[string, netip.Addr] {
	return func(yield func(string, netip.Addr) bool) {
		if text := strings.TrimSpace(o.Spec.LoadBalancerIP); text != "" && !yield(text, requestedAddr(text)) {
			return
		}
		list, _ := annotation(o, requestAnnotation, requestAlias)
		for text := range strings.SplitSeq(list, ",") {
			if text = strings.TrimSpace(text); text != "" && !yield(text, requestedAddr(text)) {
				return
			}
		}
	}
}

func requestedAddr(text string) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if addr = addr.Unmap(); err != nil || addr.Zone() != "" || addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}

// parseRequest reads the spec and the annotations of a Service. has are the addresses that it has, also beyond the bound.
func (s settings) parseRequest(o *serviceObject, has []netip.Addr) request {
	r := request{sharing: s.parseSharing(o), families: s.families(o)}
	r.choose(o, has, s.most)
	return r
}

// choose chooses among the addresses that a Service names: those that it has, and others in their order while there are fewer than the bound. So no
// order of the names, and no sequence of edits, leads to more than the bound, or than it has already (LBIP-32).
func (r *request) choose(o *serviceObject, has []netip.Addr, most int) {
	r.ips, r.had, r.beyond, r.kept, r.invalid = nil, nil, 0, nil, ""
	keeps := namedOf(o, has)
	number := map[alloc.Family]int{} // that are chosen, or will be since the Service has them
	for addr := range keeps {
		number[alloc.FamilyOf(addr)]++
	}
	chosen, asked := map[netip.Addr]bool{}, map[alloc.Family]int{}
	for text, addr := range requested(o) {
		f := alloc.FamilyOf(addr)
		switch {
		case !addr.IsValid():
			r.invalid = cmp.Or(r.invalid, printable.Cut(text, maxInvalid))
			continue
		case chosen[addr]:
			continue
		case keeps[addr]:
			r.kept = append(r.kept, addr)
		case number[f] < most:
			number[f]++
		default:
			r.beyond++
			continue
		}
		chosen[addr] = true
		if asked[f]++; asked[f] <= most {
			r.ips = append(r.ips, addr)
		} else {
			r.had = append(r.had, addr)
		}
	}
	if len(r.ips) == 0 && r.invalid != "" {
		r.had = slices.Clone(has)
	}
}

// namedOf are those of some addresses that a Service names.
func namedOf(o *serviceObject, addrs []netip.Addr) map[netip.Addr]bool {
	named := map[netip.Addr]bool{}
	if len(addrs) == 0 {
		return named
	}
	for _, addr := range addrs {
		named[addr] = false
	}
	for _, addr := range requested(o) {
		if _, ok := named[addr]; ok {
			named[addr] = true
		}
	}
	maps.DeleteFunc(named, func(_ netip.Addr, is bool) bool { return !is })
	return named
}

// annotation is the value of an annotation, or of its older name.
func annotation(o *serviceObject, name, alias string) (string, bool) {
	if value, ok := o.Annotations.Lookup(name); ok {
		return value, true
	}
	return o.Annotations.Lookup(alias)
}

// families are the families of which a Service wants an address each, IPv4 first.
func (s settings) families(o *serviceObject) []alloc.Family {
	var enabled, listed []alloc.Family
	if s.ipv4 {
		enabled = append(enabled, alloc.IPv4)
	}
	if s.ipv6 {
		enabled = append(enabled, alloc.IPv6)
	}
	for _, f := range []alloc.Family{alloc.IPv4, alloc.IPv6} {
		if slices.Contains(o.Spec.IPFamilies, slim.MakeString(f.String())) {
			listed = append(listed, f)
		}
	}
	switch o.Spec.IPFamilyPolicy.String() {
	case "RequireDualStack":
		return enabled
	case "PreferDualStack":
		if both := slices.DeleteFunc(listed, func(f alloc.Family) bool { return !slices.Contains(enabled, f) }); len(both) > 0 {
			return both
		}
		return enabled
	}
	if families := o.Spec.IPFamilies; len(families) > 0 { // the first, also if it is disabled
		if families[0].String() == alloc.IPv6.String() {
			return []alloc.Family{alloc.IPv6}
		}
		return []alloc.Family{alloc.IPv4}
	}
	return enabled[:min(1, len(enabled))]
}

// admits reports whether an address is one of those that a Service may have, beside those that it holds.
func (r *request) admits(a netip.Addr, held []netip.Addr) bool {
	if len(r.ips) > 0 || r.invalid != "" {
		return slices.Contains(r.ips, a) || slices.Contains(r.had, a)
	}
	return slices.Contains(r.families, alloc.FamilyOf(a)) && !hasFamily(held, alloc.FamilyOf(a))
}

func hasFamily(addrs []netip.Addr, f alloc.Family) bool {
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return alloc.FamilyOf(a) == f })
}

// serviceLabels are the labels of a Service with those that stand for its name and namespace.
type serviceLabels struct {
	labels.Labels
	key slim.Key
}

const (
	nameLabel      = "io.kubernetes.service.name"
	namespaceLabel = "io.kubernetes.service.namespace"
)

// Lookup implements labels.Labels.
func (l serviceLabels) Lookup(label string) (string, bool) {
	switch label {
	case nameLabel:
		return l.key.Name, true
	case namespaceLabel:
		return l.key.Namespace, true
	}
	return l.Labels.Lookup(label)
}

// Has implements labels.Labels.
func (l serviceLabels) Has(label string) bool {
	_, ok := l.Lookup(label)
	return ok
}

// Get implements labels.Labels.
func (l serviceLabels) Get(label string) string {
	value, _ := l.Lookup(label)
	return value
}
