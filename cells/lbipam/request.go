// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"cmp"
	"iter"
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
	// invalid is the first requested address that cannot be parsed, "" for none.
	invalid string

	sharing sharing
}

// maxInvalid is how much of a text that is no address a status shows.
const maxInvalid = 256

// requested are the texts of the addresses that a Service asks for.
func requested(o *serviceObject) iter.Seq[string] {
	return func(yield func(string) bool) {
		if text := o.Spec.LoadBalancerIP; text != "" && !yield(text) {
			return
		}
		list, _ := annotation(o, requestAnnotation, requestAlias)
		for text := range strings.SplitSeq(list, ",") {
			if !yield(text) {
				return
			}
		}
	}
}

// parseRequest reads the spec and the annotations of a Service. has are the addresses that it has, also beyond the bound.
func (s settings) parseRequest(o *serviceObject, has []netip.Addr) request {
	r := request{sharing: s.parseSharing(o)}
	number := map[alloc.Family]int{}
	for text := range requested(o) {
		text = strings.TrimSpace(text)
		addr, err := netip.ParseAddr(text)
		switch addr = addr.Unmap(); {
		case text == "":
		case err != nil || addr.Zone() != "" || addr.IsUnspecified():
			r.invalid = cmp.Or(r.invalid, printable.Cut(text, maxInvalid))
		case slices.Contains(r.ips, addr), slices.Contains(r.had, addr):
		case number[alloc.FamilyOf(addr)] < s.most:
			number[alloc.FamilyOf(addr)]++
			r.ips = append(r.ips, addr)
		case slices.Contains(has, addr):
			r.had = append(r.had, addr)
		default:
			r.beyond++
		}
	}
	if len(r.ips) == 0 && r.invalid != "" {
		r.had = slices.Clone(has)
	}
	r.families = s.families(o)
	return r
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
