// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// exported is what is known of a Service of this cluster that is exported, with its derived Service as it was stored.
func exported(t *testing.T, r release.Release, selector map[string]string) *state {
	t.Helper()
	s := &state{key: web, cluster: "c1", release: r, imported: newImport("c1"), export: newExport(), service: newService("10.96.0.10", localPort())}
	s.imported.Spec.Type = mcsv1alpha1.ClusterSetIP
	s.published = exportOf(s.export, s.service, "c1", r)
	d := s.desired(&s.imported.Spec)
	d.Spec.Selector = selector
	s.derived = stored(t, d)
	s.local.isKnown = true
	return s
}

// slice is an EndpointSlice of a manager, with ready endpoints.
func slice(name, manager string, addresses ...string) *endpointSlice {
	of := &endpointSlice{AddressType: text("IPv4"), Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}}
	of.Namespace, of.Name, of.Labels = text("shop"), name, slim.MakeLabels(map[string]string{discoveryv1.LabelManagedBy: manager})
	for _, a := range addresses {
		of.Endpoints = append(of.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return of
}

// copied is a copy as it was stored.
func copied(of *discoveryv1.EndpointSlice) *sliceCopy {
	has := &sliceCopy{AddressType: text(string(of.AddressType)), Endpoints: of.Endpoints, Ports: of.Ports}
	has.Namespace, has.Name, has.Labels = text(of.Namespace), of.Name, slim.MakeLabels(of.Labels)
	o := of.OwnerReferences[0]
	has.Owners = []slim.OwnerReference{{APIVersion: text(o.APIVersion), Kind: text(o.Kind), Name: o.Name, UID: slim.ParseUID(string(o.UID)), Controller: true}}
	return has
}

// String is the names of copies without that of the derived Service.
func (p copyPlan) String() string {
	var missing, changed, surplus []string
	for _, w := range p.missing {
		missing = append(missing, w.Name)
	}
	for _, c := range p.changed {
		changed = append(changed, c.is.Name)
	}
	for _, has := range p.surplus {
		surplus = append(surplus, has.Name)
	}
	text := func(names []string) string {
		for i := range names {
			names[i] = strings.Replace(strings.TrimPrefix(names[i], derivedName+"-"), hashed("mine"), "mine", 1)
		}
		slices.Sort(names)
		return fmt.Sprint(names)
	}
	return "+" + text(missing) + " ~" + text(changed) + " -" + text(surplus)
}

var derivedName = derivedKey(web).Name

// MCS-27: the copies of EndpointSlices follow them. Nothing is deleted while the EndpointSlices, or what this cluster exports, are not known.
func TestPlanCopies(t *testing.T) {
	s := exported(t, release.Newest(), nil)
	mine, d := slice("mine", "", "10.0.1.2"), s.desired(&s.imported.Spec)
	s.local.sources = []*endpointSlice{slice("web-a", kubernetesManager, "10.0.1.1"), mine}
	p := s.planCopies(d)
	if got := p.String(); got != "+[a mine] ~[] -[]" {
		t.Error(got)
	}
	for _, w := range p.missing {
		s.local.copies = append(s.local.copies, copied(w))
	}
	sixth := slice("web-a", kubernetesManager, "fd00::1")
	sixth.AddressType = text("IPv6")
	for name, test := range map[string]struct {
		change func(*state)
		want   string
	}{
		"nothing": {func(*state) {}, "+[] ~[] -[]"},
		"an endpoint": {func(s *state) {
			s.local.sources = []*endpointSlice{slice("web-a", kubernetesManager, "10.0.1.3"), mine}
		}, "+[] ~[a] -[]"},
		"another slice in its place": {func(s *state) {
			s.local.sources = []*endpointSlice{slice("web-b", kubernetesManager, "10.0.1.1"), mine}
		}, "+[b] ~[] -[a]"},
		"another address type":           {func(s *state) { s.local.sources = []*endpointSlice{sixth, mine} }, "+[] ~[] -[a]"},
		"slices that are not known":      {func(s *state) { s.local.sources, s.local.isKnown = nil, false }, "+[] ~[] -[]"},
		"objects that are not fresh":     {func(s *state) { s.local.sources, s.isStale = nil, true }, "+[] ~[] -[]"},
		"an export that is not seen yet": {func(s *state) { s.published, s.isStale = nil, true }, "+[] ~[] -[]"},
		"no export":                      {func(s *state) { s.published = nil }, "+[] ~[] -[a mine]"},
		"no permission":                  {func(s *state) { s.noCopies, s.service = true, newService("None") }, "+[] ~[] -[]"},
	} {
		changed := *s
		test.change(&changed)
		if got := changed.planCopies(d).String(); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// MCS-27; numbers B16 and B17 of the contract's bgp.md: a copy has what the EndpointSlice has, also of endpoints that are not ready, and
// the labels of the derived Service.
func TestNewCopy(t *testing.T) {
	s := exported(t, release.Newest(), nil)
	of := slice("web-a", kubernetesManager, "10.0.1.1", "10.0.1.2")
	of.Endpoints[0].Hostname, of.Endpoints[1].Hostname, of.Endpoints[1].Zone = new("web-0"), new("web-1"), new("z1")
	of.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	c := s.newCopy(of, s.desired(&s.imported.Spec))
	if len(c.Endpoints) != 2 || *c.Endpoints[1].Hostname != "web-1" || *c.Endpoints[1].Zone != "z1" || !*c.Endpoints[1].Conditions.Serving || *c.Ports[0].Port != 8080 {
		t.Errorf("%+v", c)
	}
	want := map[string]string{
		discoveryv1.LabelServiceName: derivedName, discoveryv1.LabelManagedBy: copyManager, copyLabel: "web-a",
		mcsv1alpha1.LabelServiceName: "web", mcsv1alpha1.LabelSourceCluster: "c1",
	}
	if c.Name != derivedName+"-a" || !maps.Equal(c.Labels, want) || c.OwnerReferences[0].UID != s.derived.UID.API() {
		t.Errorf("%+v", c.ObjectMeta)
	}
	long := slice("web-"+strings.Repeat("a", 245), "", "10.0.1.1")
	if c := s.newCopy(long, s.desired(&s.imported.Spec)); c.Name != derivedName+"-"+hashed(long.Name) || c.Labels[copyLabel] != hashed(long.Name) {
		t.Errorf("%+v", c.ObjectMeta)
	}
}

// MCS-27; number B18 of the contract's bgp.md: of ports in conflict, endpoints of this cluster have the ones that mean the same, from 1.19 on.
func TestCopiedPorts(t *testing.T) {
	of := slice("web-a", kubernetesManager, "10.0.1.1")
	of.Ports = append(of.Ports, discoveryv1.EndpointPort{Name: new("metrics"), Port: new(int32(9090))})
	for name, test := range map[string]struct {
		release  string
		derived  []corev1.ServicePort
		want     int
		noCopies bool
	}{
		"both":             {"1.20", []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "metrics", Port: 9000}}, 2, false},
		"another number":   {"1.19", []corev1.ServicePort{{Name: "http", Port: 8080}, {Name: "metrics", Port: 9000}}, 1, false},
		"another protocol": {"1.19", []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolUDP}, {Name: "metrics", Port: 9000}}, 1, false},
		"one that is gone": {"1.20", []corev1.ServicePort{{Name: "http", Port: 80}}, 1, false},
		"none":             {"1.20", []corev1.ServicePort{{Name: "http", Port: 8080}}, 0, true},
		"none, in 1.18":    {"1.18", []corev1.ServicePort{{Name: "http", Port: 8080}}, 2, false},
	} {
		r, _, _ := release.Parse(test.release)
		s := exported(t, r, nil)
		s.service.Spec.Ports = append(s.service.Spec.Ports, corev1.ServicePort{Name: "metrics", Protocol: corev1.ProtocolTCP, Port: 9000})
		d := s.desired(&s.imported.Spec)
		d.Spec.Ports = test.derived
		c := s.newCopy(of, d)
		if (c == nil) != test.noCopies || c != nil && len(c.Ports) != test.want {
			t.Errorf("%s: %+v", name, c)
		}
	}
	s := exported(t, release.Newest(), nil) // without ports there is nothing to leave out
	of.Ports = nil
	if s.newCopy(of, s.desired(&s.imported.Spec)) == nil {
		t.Error("a slice without ports has no copy")
	}
}

// MCS-27 and MCS-38: EndpointSlices of IP families that are not supported have no copies, from 1.19 on.
func TestCopiedFamilies(t *testing.T) {
	of := slice("web-a", kubernetesManager, "fd00::1")
	of.AddressType = text("IPv6")
	for version, want := range map[string]bool{"1.18": true, "1.19": false} {
		r, _, _ := release.Parse(version)
		s := exported(t, r, nil)
		s.families = []corev1.IPFamily{"IPv4", "IPv6"}
		s.imported.Spec.IPFamilies = s.families[:1]
		if got := s.newCopy(of, s.desired(&s.imported.Spec)) != nil; got != want {
			t.Errorf("%s: there is a copy: %t", version, got)
		}
	}
}

// MCS-41: on the way to no selector there are copies first, then a selector that selects no pods until Kubernetes has taken its endpoints out.
// On the way back there is a selector first, and copies until Kubernetes has made its EndpointSlices.
func TestNextSelector(t *testing.T) {
	app, none := map[string]string{"app": "web"}, map[string]string(nil)
	source := slice("web-a", kubernetesManager, "10.0.1.1")
	for name, test := range map[string]struct {
		release        string
		has            map[string]string
		copies         bool
		change         func(*state)
		want           map[string]string
		surplus, empty bool // copies are deleted; they are emptied
	}{
		"of 1.17":                      {"1.17", app, false, nil, app, false, false},
		"no copies yet":                {"1.18", app, false, nil, app, false, false},
		"slices are not known":         {"1.20", app, true, func(s *state) { s.local.isKnown = false }, app, false, false},
		"copies":                       {"1.20", app, true, nil, noPods, false, false},
		"Kubernetes has endpoints":     {"1.20", noPods, true, nil, noPods, false, false},
		"Kubernetes has none":          {"1.20", noPods, true, nil, none, false, true},
		"mirrored ones":                {"1.20", none, true, func(s *state) { s.local.kubernetes = []*endpointSlice{slice("x", mirroringManager, "10.0.1.1")} }, noPods, false, false},
		"none":                         {"1.20", none, true, nil, none, false, false},
		"no export":                    {"1.17", app, false, func(s *state) { s.published = nil }, noPods, false, false},
		"the role allows no copies":    {"1.20", none, false, func(s *state) { s.noCopies = true }, app, false, false},
		"back, without endpoints":      {"1.17", none, true, nil, app, false, false},
		"a selector that comes":        {"1.17", app, true, func(s *state) { s.local.sources = []*endpointSlice{slice("mine", "", "10.0.1.1")} }, app, false, false},
		"back, with others":            {"1.17", app, true, func(s *state) { s.local.kubernetes = []*endpointSlice{slice("x", kubernetesManager, "10.0.1.2")} }, app, false, false},
		"back, with them":              {"1.17", app, true, func(s *state) { s.local.kubernetes = []*endpointSlice{slice("x", kubernetesManager, "10.0.1.1")} }, app, true, false},
		"a Service without a selector": {"1.17", none, true, func(s *state) { s.service.Spec.Selector = slim.Labels{} }, none, false, false},
	} {
		r, _, _ := release.Parse(test.release)
		s := exported(t, r, test.has)
		s.local.sources = []*endpointSlice{source}
		if test.copies {
			s.local.copies = []*sliceCopy{copied(s.newCopy(source, s.desired(&s.imported.Spec)))}
		}
		if s.isEmptied = test.empty; test.change != nil {
			test.change(s)
		}
		d := s.desired(&s.imported.Spec)
		if p := s.planCopies(d); !maps.Equal(d.Spec.Selector, test.want) || len(p.surplus) > 0 != test.surplus {
			t.Errorf("%s: selector %v, want %v; copies %v", name, d.Spec.Selector, test.want, p)
		}
	}
}

// MCS-19 and MCS-40; number B23 of the contract's bgp.md: what an original has made is recognized, and not written before there is more to change.
func TestDerivedOfOriginals(t *testing.T) {
	s := exported(t, release.Newest(), nil)
	d := s.desired(&s.imported.Spec)
	if d.Spec.Selector != nil || len(d.OwnerReferences) != 1 || d.OwnerReferences[0].Kind != mcsv1alpha1.ServiceImportKindName {
		t.Errorf("%+v", d)
	}
	left := d.DeepCopy()
	delete(left.Labels, mcsv1alpha1.LabelSourceCluster)
	delete(left.Annotations, sharedAnnotation)
	left.Annotations[derivedAnnotation] = left.Name
	left.OwnerReferences[0].APIVersion, left.OwnerReferences[0].Controller = mcsv1alpha1.GroupName+"/v1beta1", new(true)
	left.Spec.Ports[0].TargetPort = intstr.FromInt32(80)
	s.derived = stored(t, left)
	if d = s.desired(&s.imported.Spec); !s.isOwned() || s.planDerived(d) != keep {
		t.Errorf("%+v is written", s.derived)
	}
	left.Labels["tier"] = "one"
	if s.derived = stored(t, left); s.planDerived(d) != update {
		t.Error("another label stays")
	}
	delete(left.Labels, "tier")
	left.OwnerReferences[0].Controller = nil
	if s.derived = stored(t, left); s.planDerived(d) != update {
		t.Error("what no original has made stays")
	}
}
