// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var (
	web     = slim.Key{Namespace: "shop", Name: "web"}
	august  = time.Date(2024, 8, 1, 10, 0, 0, 0, time.UTC)
	text    = slim.MakeString
	http80  = mcsv1alpha1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}
	noClash = conditionText{"Conflict", "False", "NoConflicts"}
	oldest  = release.All()[0] // derived Services have selectors

	originals = rules{oldestDecides: true, labels: allowed{"*"}, annotations: allowed{"*"}}
)

// MCS-9: the name of derived Services; B7 has this one.
func TestDerivedName(t *testing.T) {
	if got := derivedKey(slim.Key{Namespace: "default", Name: "web"}); got != (slim.Key{Namespace: "default", Name: "derived-gapqrqeg1j"}) {
		t.Error(got)
	}
}

func newExport() *serviceExport {
	e := &serviceExport{}
	e.Namespace, e.Name, e.UID, e.CreationTimestamp = text("shop"), "web", slim.ParseUID("6f9619ff-8b86-4d01-b42d-00c04fc964ff"), slim.MakeTime(august)
	return e
}

func newService(clusterIP string, ports ...corev1.ServicePort) *service {
	s := &service{}
	s.Namespace, s.Name = text("shop"), "web"
	s.Spec = serviceSpec{Type: text("ClusterIP"), ClusterIP: text(clusterIP), Ports: ports, SessionAffinity: text("None"), Selector: slim.MakeLabels(map[string]string{"app": "web"})}
	return s
}

func localPort() corev1.ServicePort {
	return corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromString("web")}
}

// MCS-5, MCS-6, MCS-32, MCS-33 and MCS-36; MCS-E1, MCS-E2 and MCS-E16; numbers B15 and B20 of the contract's bgp.md.
func TestExportOf(t *testing.T) {
	const plain = `{"cluster":"c1","name":"web","namespace":"shop","exportCreationTimestamp":"2024-08-01T10:00:00Z","ports":[{"name":"http","protocol":"TCP","port":80}],"type":"ClusterSetIP","sessionAffinity":"None"}`
	deleting := newExport()
	deleting.DeletionTimestamp = slim.MakeTime(august)
	external := newService("")
	external.Spec.Type = text("ExternalName")
	affine := newService("10.96.0.10", localPort())
	affine.Spec.SessionAffinity = text("ClientIP")
	affine.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}}
	labelled := newExport()
	labelled.Spec.ExportedLabels = slim.MakeLabels(map[string]string{"tier": "one", "no label": "", mcsv1alpha1.LabelServiceName: "x"})
	labelled.Spec.ExportedAnnotations = slim.MakeLabels(map[string]string{"note": "é", globalAnnotation: "false"})
	plainly := newService("10.96.0.10", localPort()) // as the API server has a Service of IPv4
	plainly.Spec.IPFamilies, plainly.Spec.InternalTrafficPolicy = []slim.String{text("IPv4")}, text("Cluster")
	specially := newService("10.96.0.10", localPort())
	specially.Spec.IPFamilies, specially.Spec.InternalTrafficPolicy, specially.Spec.TrafficDistribution = []slim.String{text("IPv6"), text("IPv4")}, text("Local"), text("PreferClose")
	with := func(fields string) string { return strings.TrimSuffix(plain, "}") + "," + fields + "}" }
	for name, test := range map[string]struct {
		export  *serviceExport
		service *service
		release release.Release
		want    string
	}{
		"labels and annotations":    {labelled, newService("10.96.0.10", localPort()), oldest, with(`"annotations":{"note":"é"},"labels":{"tier":"one"},"Annotations":{"note":"é"},"Labels":{"tier":"one"}`)},
		"the defaults of traffic":   {newExport(), plainly, oldest, plain},
		"traffic":                   {newExport(), specially, oldest, with(`"ipFamilies":["IPv6","IPv4"],"internalTrafficPolicy":"Local","trafficDistribution":"PreferClose"`)},
		"ClusterSetIP":              {newExport(), newService("10.96.0.10", localPort()), oldest, plain},
		"headless":                  {newExport(), newService("None", localPort()), oldest, strings.Replace(plain, "ClusterSetIP", "Headless", 1)},
		"without ports":             {newExport(), newService("None"), oldest, strings.NewReplacer("ClusterSetIP", "Headless", `{"name":"http","protocol":"TCP","port":80}`, "").Replace(plain)},
		"session affinity":          {newExport(), affine, oldest, strings.Replace(plain, `"None"`, `"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":60}}`, 1)},
		"an export that is deleted": {deleting, newService("10.96.0.10"), oldest, ""},
		"no Service":                {newExport(), nil, oldest, ""},
		"no export":                 {nil, newService("10.96.0.10"), oldest, ""},
		"ExternalName":              {newExport(), external, oldest, ""},
		"the defaults of 1.20":      {newExport(), plainly, release.Newest(), with(`"ipFamilies":["IPv4"],"internalTrafficPolicy":"Cluster"`)},
		"traffic, in 1.20":          {newExport(), specially, release.Newest(), with(`"ipFamilies":["IPv6","IPv4"],"internalTrafficPolicy":"Local","trafficDistribution":"PreferClose"`)},
	} {
		got := ""
		if e := exportOf(test.export, test.service, "c1", test.release); e != nil {
			content, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			got = string(content)
		}
		if got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, test.want)
		}
	}
}

// of is what a cluster exports, some hours after the others.
func of(name string, hours int, change func(*clustermesh.ServiceExport)) *clustermesh.ServiceExport {
	e := &clustermesh.ServiceExport{
		Cluster: name, Name: "web", Namespace: "shop", Created: metav1.NewTime(august.Add(time.Duration(hours) * time.Hour)),
		Ports: []mcsv1alpha1.ServicePort{http80}, Type: mcsv1alpha1.ClusterSetIP, SessionAffinity: corev1.ServiceAffinityNone,
	}
	if change != nil {
		change(e)
	}
	return e
}

// traffic sets what an export says of traffic; the families have spaces between them.
func traffic(families, policy, distribution string) func(*clustermesh.ServiceExport) {
	return func(e *clustermesh.ServiceExport) {
		var list []corev1.IPFamily
		for f := range strings.FieldsSeq(families) {
			list = append(list, corev1.IPFamily(f))
		}
		e.SetTraffic(list, policy, distribution)
	}
}

func ports(ports ...mcsv1alpha1.ServicePort) func(*clustermesh.ServiceExport) {
	return func(e *clustermesh.ServiceExport) { e.Ports = ports }
}

func port(name string, number int32) mcsv1alpha1.ServicePort {
	return mcsv1alpha1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number}
}

// MCS-12, MCS-13, MCS-34 and MCS-37; MCS-E7 and MCS-E8. The order in which clusters are read makes no difference.
func TestMerge(t *testing.T) {
	headless := func(e *clustermesh.ServiceExport) { e.Type = mcsv1alpha1.Headless }
	affine := func(e *clustermesh.ServiceExport) { e.SessionAffinity = corev1.ServiceAffinityClientIP }
	seconds := func(n int32) func(*clustermesh.ServiceExport) {
		return func(e *clustermesh.ServiceExport) {
			affine(e)
			e.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &n}}
		}
	}
	for name, test := range map[string]struct {
		exports []*clustermesh.ServiceExport
		kind    mcsv1alpha1.ServiceImportType
		ports   string
		reasons string
		text    string // in the first conflict
	}{
		"none":               {nil, "", "", "", ""},
		"equal ones":         {[]*clustermesh.ServiceExport{of("a", 1, nil), of("b", 0, nil)}, "ClusterSetIP", "http 80/TCP", "", ""},
		"an older one":       {[]*clustermesh.ServiceExport{of("a", 1, headless), of("b", 0, nil)}, "ClusterSetIP", "http 80/TCP", "TypeConflict", "the type is that of cluster b, whose export is older, and another one in a"},
		"equally old":        {[]*clustermesh.ServiceExport{of("b", 0, nil), of("a", 0, headless), of("c", 3, nil)}, "Headless", "http 80/TCP", "TypeConflict", "another one in b, c"},
		"more ports":         {[]*clustermesh.ServiceExport{of("a", 0, nil), of("b", 1, ports(http80, port("metrics", 9090)))}, "ClusterSetIP", "http 80/TCP, metrics 9090/TCP", "", ""},
		"a port of the name": {[]*clustermesh.ServiceExport{of("a", 0, nil), of("b", 1, ports(port("http", 8080)))}, "ClusterSetIP", "http 80/TCP", "PortConflict", "the port http 80/TCP is that of cluster a, whose export is older, and another one in b"},
		"a port of the number": {[]*clustermesh.ServiceExport{of("a", 0, nil), of("b", 1, ports(port("web", 80))), of("c", 2, ports(port("www", 80)))},
			"ClusterSetIP", "http 80/TCP", "PortConflict", "another one in b, c"},
		"a port without a name": {[]*clustermesh.ServiceExport{of("a", 0, ports(port("", 80))), of("b", 1, ports(port("http", 8080)))}, "ClusterSetIP", "80/TCP", "PortConflict", ""},
		"protocols":             {[]*clustermesh.ServiceExport{of("a", 0, ports(mcsv1alpha1.ServicePort{Name: "http", Port: 80})), of("b", 1, nil)}, "ClusterSetIP", "http 80/TCP", "", ""},
		"session affinity":      {[]*clustermesh.ServiceExport{of("a", 0, nil), of("b", 1, seconds(60))}, "ClusterSetIP", "http 80/TCP", "SessionAffinityConflict", ""},
		"time-outs":             {[]*clustermesh.ServiceExport{of("a", 0, seconds(10)), of("b", 1, seconds(60))}, "ClusterSetIP", "http 80/TCP", "SessionAffinityConfigConflict", ""},
		"labels":                {[]*clustermesh.ServiceExport{of("a", 0, nil), of("b", 1, func(e *clustermesh.ServiceExport) { e.Labels = map[string]string{"a": "b"} })}, "ClusterSetIP", "http 80/TCP", "LabelsConflict", "the set of labels is that of cluster a"},
		"annotations":           {[]*clustermesh.ServiceExport{of("a", 0, nil), of("b", 1, func(e *clustermesh.ServiceExport) { e.Annotations = map[string]string{"a": "b"} })}, "ClusterSetIP", "http 80/TCP", "AnnotationsConflict", ""},
		"IP families":           {[]*clustermesh.ServiceExport{of("a", 0, traffic("IPv4 IPv6", "", "")), of("b", 1, traffic("IPv6 IPv4", "", "")), of("c", 2, nil)}, "ClusterSetIP", "http 80/TCP", "", ""},
		"no IP families":        {[]*clustermesh.ServiceExport{of("a", 0, traffic("IPv4", "", "")), of("b", 1, nil)}, "ClusterSetIP", "http 80/TCP", "", ""},
		"internal traffic":      {[]*clustermesh.ServiceExport{of("a", 0, traffic("", "Local", "")), of("b", 1, traffic("", "Cluster", ""))}, "ClusterSetIP", "http 80/TCP", "InternalTrafficPolicyConflict", ""},
		"traffic distribution":  {[]*clustermesh.ServiceExport{of("a", 0, nil), of("b", 1, traffic("", "", "PreferClose"))}, "ClusterSetIP", "http 80/TCP", "TrafficDistributionConflict", ""},
		"all at once": {[]*clustermesh.ServiceExport{of("a", 0, traffic("IPv4", "Cluster", "")), of("b", 1, func(e *clustermesh.ServiceExport) {
			traffic("IPv6", "Local", "PreferClose")(e)
			e.Labels, e.Annotations, e.Type = map[string]string{"a": "b"}, map[string]string{"a": "b"}, mcsv1alpha1.Headless
		})}, "ClusterSetIP", "http 80/TCP", "TypeConflict,LabelsConflict,AnnotationsConflict,IPFamilyConflict,InternalTrafficPolicyConflict,TrafficDistributionConflict", ""},
		"an older release": {[]*clustermesh.ServiceExport{of("a", 0, func(e *clustermesh.ServiceExport) { e.SessionAffinity = "" }), of("b", 1, nil)}, "ClusterSetIP", "http 80/TCP", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				m := originals.merge(test.exports)
				var ports, reasons, texts []string
				for _, p := range m.spec.Ports {
					ports = append(ports, portText(p))
				}
				for _, c := range m.conflicts {
					reasons, texts = append(reasons, string(c.reason)), append(texts, c.text)
				}
				if got := strings.Join(ports, ", "); m.spec.Type != test.kind || got != test.ports {
					t.Errorf("%s with the ports %s, want %s with %s", m.spec.Type, got, test.kind, test.ports)
				}
				if got := strings.Join(reasons, ","); got != test.reasons || len(texts) > 0 && !strings.Contains(texts[0], test.text) {
					t.Errorf("conflicts %s: %q, want %s: %s", got, texts, test.reasons, test.text)
				}
				slices.Reverse(test.exports)
			}
		})
	}
}

// newImport is a ServiceImport of this duty that some clusters contribute to.
func newImport(clusters ...string) *serviceImport {
	i := &serviceImport{}
	i.Namespace, i.Name, i.UID = text("shop"), "web", slim.ParseUID("6f9619ff-8b86-4d01-b42d-00c04fc964fe")
	i.Annotations = slim.MakeLabels(map[string]string{madeHere: "true", derivedAnnotation: "derived-x"})
	i.Spec = mcsv1alpha1.ServiceImportSpec{Type: mcsv1alpha1.Headless, Ports: []mcsv1alpha1.ServicePort{http80}}
	for _, c := range clusters {
		i.Status.Clusters = append(i.Status.Clusters, mcsv1alpha1.ClusterStatus{Cluster: c})
	}
	return i
}

func byUser(i *serviceImport) *serviceImport {
	i.Annotations = slim.MakeLabels(map[string]string{"team": "red", corev1.LastAppliedConfigAnnotation: "{}"})
	i.Labels = slim.MakeLabels(map[string]string{"tier": "one"})
	return i
}

// left has a ServiceImport have annotations in place of its own; madeHere says that it is of a user.
func left(i *serviceImport, annotations ...string) *serviceImport {
	m := map[string]string{}
	for _, key := range annotations {
		m[key] = ofUser
	}
	i.Annotations = slim.MakeLabels(m)
	return i
}

// MCS-10, MCS-11, MCS-15 and MCS-42; numbers B9 and B10 of the contract's bgp.md: what becomes of a ServiceImport.
func TestPlanImport(t *testing.T) {
	remote := []*clustermesh.ServiceExport{of("a", 0, nil)}
	owner := slim.OwnerReference{APIVersion: text(mcsv1alpha1.GroupName + "/v1beta1"), Kind: text(mcsv1alpha1.ServiceImportKindName), Name: "web", UID: newImport().UID}
	var ofUs, ofOriginal service
	ofUs.Labels, ofUs.Owners = slim.MakeLabels(map[string]string{mcsv1alpha1.LabelServiceName: "web"}), []slim.OwnerReference{owner}
	owner.Controller = true
	ofOriginal.Labels, ofOriginal.Owners = ofUs.Labels, []slim.OwnerReference{owner}
	for name, test := range map[string]struct {
		state state
		verb  verb
		kind  mcsv1alpha1.ServiceImportType // "": it has no spec then
	}{
		"nothing":                             {state{}, keep, ""},
		"an export":                           {state{remote: remote}, create, "ClusterSetIP"},
		"an export, and a cluster is away":    {state{remote: remote, unknown: []string{"b"}}, create, "ClusterSetIP"},
		"exports change":                      {state{imported: newImport("a"), remote: remote}, keep, "ClusterSetIP"},
		"a contributor is away":               {state{imported: newImport("a", "b"), remote: remote, unknown: []string{"b"}}, keep, "Headless"},
		"another one is away":                 {state{imported: newImport("a"), remote: remote, unknown: []string{"b"}}, keep, "ClusterSetIP"},
		"the status is not written yet":       {state{imported: newImport(), remote: remote, unknown: []string{"b"}}, keep, "Headless"},
		"no export":                           {state{imported: newImport("a")}, remove, ""},
		"no export, and a cluster is away":    {state{imported: newImport("a"), unknown: []string{"b"}}, remove, ""},
		"no export, and one of them is away":  {state{imported: newImport("a", "b"), unknown: []string{"b"}}, keep, "Headless"},
		"no export is seen, nothing is said":  {state{imported: newImport(), unknown: []string{"b"}}, keep, "Headless"},
		"this cluster is not seen to export":  {state{imported: newImport("a"), cluster: "c1", isStale: true, unknown: []string{"c1"}}, keep, "Headless"},
		"of a user, without exports":          {state{imported: byUser(newImport())}, keep, "Headless"},
		"of a user, with exports":             {state{imported: byUser(newImport()), remote: remote}, keep, "Headless"},
		"no cluster but this one exports":     {state{published: of("c1", 0, nil)}, create, "ClusterSetIP"},
		"this cluster does not export it now": {state{imported: newImport("a", "c1"), remote: remote}, keep, "ClusterSetIP"},

		"of an original, with exports":            {state{imported: left(newImport("a"), derivedAnnotation), remote: remote}, keep, "ClusterSetIP"},
		"of an original, without exports":         {state{imported: left(newImport("a"), derivedAnnotation)}, remove, ""},
		"of an original, and a cluster is away":   {state{imported: left(newImport("a"), derivedAnnotation), unknown: []string{"a"}}, keep, "Headless"},
		"of 1.19, with another Service":           {state{imported: left(newImport("a"), supportedFamilies), derived: &ofUs, remote: remote}, keep, "ClusterSetIP"},
		"with a Service of 1.18":                  {state{imported: left(newImport("a"), derivedAnnotation), derived: &ofOriginal, remote: remote}, keep, "ClusterSetIP"},
		"with a Service of this duty":             {state{imported: left(newImport("a"), derivedAnnotation), derived: &ofUs, remote: remote}, keep, "Headless"},
		"with a Service of this duty, no exports": {state{imported: left(newImport("a"), derivedAnnotation), derived: &ofUs}, keep, "Headless"},
		"of a user of 1.17":                       {state{release: oldest, imported: left(newImport("a"), derivedAnnotation), remote: remote}, keep, "Headless"},
		"said to be of a user":                    {state{imported: left(newImport("a"), derivedAnnotation, madeHere), remote: remote}, keep, "Headless"},
		"said to be of a user, without exports":   {state{imported: left(newImport("a"), supportedFamilies, madeHere)}, keep, "Headless"},
	} {
		test.state.key = web
		p := test.state.planImport()
		kind := mcsv1alpha1.ServiceImportType("")
		if p.spec != nil {
			kind = p.spec.Type
		}
		if p.verb != test.verb || kind != test.kind {
			t.Errorf("%s: verb %d and type %q, want %d and %q", name, p.verb, kind, test.verb, test.kind)
		}
	}
}

// MCS-39: before the objects of this cluster are fresh, nothing of a derived Service is withdrawn.
func TestStale(t *testing.T) {
	derived := &service{}
	derived.Labels = slim.MakeLabels(map[string]string{mcsv1alpha1.LabelServiceName: "web"})
	derived.Owners = []slim.OwnerReference{{APIVersion: text(mcsv1alpha1.SchemeGroupVersion.String()), Kind: text(mcsv1alpha1.ServiceImportKindName), Name: "web"}}
	derived.Annotations = slim.MakeLabels(map[string]string{sharedAnnotation: "true"})
	selects := &service{serviceMeta: derived.serviceMeta}
	selects.Annotations, selects.Spec.Selector = slim.Labels{}, slim.MakeLabels(map[string]string{"app": "web"})
	key, own := slim.Key{Namespace: "shop", Name: "web"}, of("c1", 0, nil)
	for name, test := range map[string]struct {
		state state
		verb  verb
		want  bool
	}{
		"a delete":                           {state{isStale: true, published: own}, remove, true},
		"another type":                       {state{isStale: true, published: own}, recreate, true},
		"an update":                          {state{isStale: true, published: own}, update, false},
		"an update without what is not seen": {state{isStale: true}, update, true},
		"without what a selector selects":    {state{isStale: true, derived: selects}, update, true},
		"what is fresh":                      {state{}, update, false},
		"nothing":                            {state{isStale: true}, keep, false},
		"a new one":                          {state{isStale: true}, create, false},
	} {
		if test.state.key = key; test.state.derived == nil {
			test.state.derived = derived
		}
		if got := test.state.withdraws(test.verb); got != test.want {
			t.Errorf("%s: withdraws %t", name, got)
		}
	}
	if s := (state{isStale: true, published: own}); s.mayBeExported() {
		t.Error("an export that is seen may be exported")
	}
}

// MCS-15 and MCS-24: a cluster that is away stays in the status.
func TestClusters(t *testing.T) {
	s := state{imported: newImport("a", "b", "gone"), unknown: []string{"b", "c"}}
	var names []string
	for _, c := range s.clusters(originals.merge([]*clustermesh.ServiceExport{of("z", 0, nil), of("a", 0, nil)})) {
		names = append(names, c.Cluster)
	}
	if got := strings.Join(names, " "); got != "a b z" {
		t.Error(got)
	}
}

// MCS-16 to MCS-19: the derived Service of a ServiceImport, without and with an export of this cluster. What the API server
// stores of it is equal to it.
func TestDesired(t *testing.T) {
	s := &state{key: web, cluster: "c1", release: oldest, imported: byUser(newImport())}
	d := s.desired(&s.imported.Spec)
	if d.Name != derivedKey(web).Name || d.Spec.ClusterIP != "None" || d.Spec.Selector != nil || d.Annotations[sharedAnnotation] != "false" || d.Annotations[globalAnnotation] != "true" {
		t.Errorf("%+v", d)
	}
	if len(d.Annotations) != 3 || d.Annotations["team"] != "red" || d.Labels["tier"] != "one" || len(d.OwnerReferences) != 1 {
		t.Errorf("%v, %v, %v", d.Labels, d.Annotations, d.OwnerReferences)
	}
	s.export, s.service = newExport(), newService("10.96.0.10", localPort())
	s.published = exportOf(s.export, s.service, "c1", s.release)
	d = s.desired(&mcsv1alpha1.ServiceImportSpec{Type: mcsv1alpha1.ClusterSetIP, Ports: []mcsv1alpha1.ServicePort{http80, port("metrics", 9090)}})
	if d.Spec.ClusterIP != "" || d.Spec.Selector["app"] != "web" || d.Annotations[sharedAnnotation] != "true" || len(d.OwnerReferences) != 2 {
		t.Errorf("%+v", d)
	}
	if p := d.Spec.Ports; p[0].TargetPort != intstr.FromString("web") || p[1].TargetPort != intstr.FromInt32(9090) {
		t.Errorf("%+v", p)
	}
	if s.isLocal = true; s.desired(&s.imported.Spec) != nil { // MCS-29
		t.Error("there is a derived Service in a Namespace that is not global")
	}
	s.isLocal = false
	if s.planDerived(d) != create || s.planDerived(nil) != keep {
		t.Error("without a derived Service")
	}
	s.derived = stored(t, d)
	if s.planDerived(d) != keep || s.planDerived(nil) != remove || !s.isOwned() {
		t.Errorf("%+v differs from %+v", s.derived, d)
	}
	changes := map[string]func(*service){
		"labels": func(s *service) { s.Labels = slim.MakeLabels(nil) }, "annotations": func(s *service) { s.Annotations = slim.MakeLabels(nil) },
		"owners": func(s *service) { s.Owners = s.Owners[1:] }, "type": func(s *service) { s.Spec.Type = text("NodePort") },
		"selector": func(s *service) { s.Spec.Selector = slim.MakeLabels(nil) }, "ports": func(s *service) { s.Spec.Ports = s.Spec.Ports[1:] },
		"affinity":             func(s *service) { s.Spec.SessionAffinity = text("ClientIP") },
		"internal policies":    func(s *service) { s.Spec.InternalTrafficPolicy = text("Local") },
		"traffic distribution": func(s *service) { s.Spec.TrafficDistribution = text("PreferClose") },
	}
	for what, change := range changes {
		s.derived = stored(t, d)
		if change(s.derived); s.planDerived(d) != update {
			t.Errorf("other %s are not noticed", what)
		}
	}
	s.derived = stored(t, d)
	if s.derived.Spec.ClusterIP = text("None"); s.planDerived(d) != recreate { // MCS-18
		t.Error("a type that changes is not noticed")
	}
	for what, change := range map[string]func(*service){"label": changes["labels"], "owner": func(s *service) { s.Owners = nil }, "name": func(s *service) { s.Owners[0].Name, s.Owners[1].Name = "x", "y" }} {
		s.derived = stored(t, d)
		if change(s.derived); s.isOwned() {
			t.Errorf("a Service with another %s is taken for ours", what)
		}
	}
}

// stored is a Service as the cache has it.
func stored(t *testing.T, d *corev1.Service) *service {
	t.Helper()
	d = d.DeepCopy()
	d.UID, d.ResourceVersion = "6f9619ff-8b86-4d01-b42d-00c04fc964fd", "7"
	if d.Spec.ClusterIP == "" {
		d.Spec.ClusterIP, d.Spec.ClusterIPs = "10.96.0.11", []string{"10.96.0.11"}
	}
	codec, err := slim.Protobuf[service, corev1.Service]()
	if err != nil {
		t.Fatal(err)
	}
	message, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{}
	if err := codec.DecodeProtobuf(slim.NewInterner(), message, s); err != nil {
		t.Fatal(err)
	}
	return s
}

type conditionText struct{ kind, status, reason string }

func textsOf(conditions []metav1.Condition) (texts []conditionText) {
	for _, c := range conditions {
		texts = append(texts, conditionText{c.Type, string(c.Status), c.Reason})
	}
	return texts
}

// MCS-22 and MCS-23; number B20 of the contract's bgp.md: the conditions of a ServiceExport.
func TestConditions(t *testing.T) {
	external, manual := newService("10.96.0.10"), newService("10.96.0.10")
	external.Spec.Type = text("ExternalName")
	manual.Spec.Selector = slim.MakeLabels(nil)
	clash := merged{conflicts: []conflict{
		{mcsv1alpha1.ServiceExportReasonPortConflict, "one"}, {mcsv1alpha1.ServiceExportReasonPortConflict, "two"}, {mcsv1alpha1.ServiceExportReasonTypeConflict, "three"},
	}}
	labelled, was := newExport(), newExport()
	labelled.Spec.ExportedLabels = slim.MakeLabels(map[string]string{"a": "b", "a b": "c", "service.kubernetes.io/headless": ""})
	was.Status.Conditions = []metav1.Condition{{Type: "Conflict", Status: metav1.ConditionTrue, Reason: "TypeConflict"}}
	for name, test := range map[string]struct {
		state   state
		merged  merged
		refused string
		want    []conditionText
		message string // in the last condition but one
	}{
		"exported":     {state{service: newService("10.96.0.10")}, merged{}, "", []conditionText{{"Valid", "True", "Valid"}, {"Ready", "True", "Exported"}, noClash}, "The Service is exported"},
		"labels":       {state{service: manual, export: labelled}, merged{}, "", []conditionText{{"Valid", "True", "Valid"}, {"Ready", "True", "Exported"}, noClash}, "The Service is exported; 2 labels are not exported, as they are not valid, reserved or too large, beginning with \"a b\""},
		"no copies":    {state{service: manual, noCopies: true}, merged{}, "", []conditionText{{"Valid", "True", "Valid"}, {"Ready", "True", "Exported"}, noClash}, "it has no selector"},
		"no selector":  {state{service: manual}, merged{}, "", []conditionText{{"Valid", "True", "Valid"}, {"Ready", "True", "Exported"}, noClash}, "The Service is exported"},
		"no Service":   {state{}, merged{}, "", []conditionText{{"Valid", "False", "NoService"}, {"Ready", "False", "Pending"}}, "There is no Service"},
		"not global":   {state{service: external, isLocal: true}, merged{}, "", []conditionText{{"Valid", "False", "NamespaceNotGlobal"}, {"Ready", "False", "Pending"}}, "The Namespace is not global"},
		"ExternalName": {state{service: external}, merged{}, "", []conditionText{{"Valid", "False", "InvalidServiceType"}, {"Ready", "False", "Pending"}}, "ExternalName"},
		"refused":      {state{service: newService("10.96.0.10")}, merged{}, "why", []conditionText{{"Valid", "True", "Valid"}, {"Ready", "False", "Failed"}, noClash}, "why"},
		"conflicts": {state{service: newService("10.96.0.10")}, clash, "", []conditionText{
			{"Valid", "True", "Valid"}, {"Ready", "True", "Exported"}, {"Conflict", "True", "PortConflict,TypeConflict"},
		}, ""},
		"a conflict, and a cluster is away": {state{service: newService("10.96.0.10"), export: was, unknown: []string{"b"}}, merged{}, "", []conditionText{
			{"Valid", "True", "Valid"}, {"Ready", "True", "Exported"}, {"Conflict", "True", "TypeConflict"},
		}, ""},
		"a part of the conflict, and a cluster is away": {state{service: newService("10.96.0.10"), export: was, unknown: []string{"b"}}, clash, "", []conditionText{
			{"Valid", "True", "Valid"}, {"Ready", "True", "Exported"}, {"Conflict", "True", "TypeConflict"},
		}, ""},
		"a new conflict, and a cluster is away": {state{service: newService("10.96.0.10"), unknown: []string{"b"}}, clash, "", []conditionText{
			{"Valid", "True", "Valid"}, {"Ready", "True", "Exported"}, {"Conflict", "True", "PortConflict,TypeConflict"},
		}, ""},
	} {
		if test.state.export == nil {
			test.state.export = newExport()
		}
		got := test.state.exportConditions(test.merged, refusal{failed, test.refused})
		if texts := textsOf(got); !slices.Equal(texts, test.want) || !strings.Contains(got[len(got)-2].Message, test.message) {
			t.Errorf("%s: %v (%s)", name, texts, got[len(got)-2].Message)
		}
		all := []metav1.Condition{{Type: "Other", Status: metav1.ConditionTrue}, {Type: "Conflict", Status: metav1.ConditionUnknown}}
		if !setConditions(&all, exportConditionTypes, got) || setConditions(&all, exportConditionTypes, got) || len(all) != len(got)+1 {
			t.Errorf("%s: set are %v", name, textsOf(all))
		}
	}
}

// MCS-34: labels and annotations of exports are those of the ServiceImport, beside those of its users, and go with the exports.
func TestImportMetadata(t *testing.T) {
	has := map[string]map[string]string{"labels": {"mine": "1", "taken": "1"}, "annotations": {madeHere: "true", "mine": "2"}}
	follow := func(labels, annotations map[string]string) {
		p := importPlan{follows: true, merged: merged{labels: labels, annotations: annotations}}
		for range 2 { // it is the same the second time
			has["labels"], has["annotations"] = p.metadata(has["labels"], has["annotations"])
		}
	}
	check := func(labels, annotations string) {
		t.Helper()
		if got := slim.MakeLabels(has["labels"]).String(); got != labels {
			t.Errorf("labels %s, want %s", got, labels)
		}
		if got := slim.MakeLabels(has["annotations"]).String(); got != annotations {
			t.Errorf("annotations %s, want %s", got, annotations)
		}
	}
	follow(nil, nil)
	check("mine=1,taken=1", "mine=2,"+madeHere+"=true")
	follow(map[string]string{"b": "2", "a": "1", "taken": "2"}, map[string]string{"c": "3"})
	check("a=1,b=2,mine=1,taken=2", "c=3,mine=2,"+annotationsOfExports+"=c,"+labelsOfExports+"=a b taken,"+madeHere+"=true")
	has["labels"]["a"] = "edited"
	follow(map[string]string{"a": "1"}, nil)
	check("a=1,mine=1", "mine=2,"+labelsOfExports+"=a,"+madeHere+"=true")
	has["annotations"][annotationsOfExports] = madeHere // by a user; it would have the ServiceImport be one of a user's
	follow(nil, nil)
	check("mine=1", "mine=2,"+madeHere+"=true")
}

// MCS-34 and MCS-42: a ServiceImport that an original has made has labels and annotations of exports alone, beside what is reserved.
func TestImportMetadataOfOriginals(t *testing.T) {
	p := importPlan{follows: true, isLeft: true, merged: merged{labels: map[string]string{"tier": "one"}, annotations: map[string]string{"owner": "b"}}}
	labels, annotations := p.metadata(map[string]string{"old": "1"}, map[string]string{"old": "2", derivedAnnotation: "derived-x", supportedFamilies: "IPv4"})
	if got := slim.MakeLabels(labels).String(); got != "tier=one" {
		t.Error(got)
	}
	if got := slim.MakeLabels(annotations).String(); got != supportedFamilies+"=IPv4,"+derivedAnnotation+"=derived-x,owner=b" {
		t.Error(got)
	}
}

// MCS-37; numbers B12 to B14 of the contract's bgp.md: the IP families are those that all exports have that say some.
func TestMergeFamilies(t *testing.T) {
	for name, test := range map[string]struct {
		families        []string // of exports, the oldest first
		want, conflicts string
	}{
		"one more":                {[]string{"IPv4 IPv6", "IPv4"}, "[IPv4]", ""},
		"one less":                {[]string{"IPv4", "IPv6 IPv4"}, "[IPv4]", ""},
		"none in common":          {[]string{"IPv4", "IPv6"}, "[IPv4]", "the set of IP families is that of cluster a, whose export is older, and another one in b"},
		"one that says nothing":   {[]string{"", "IPv6"}, "[IPv6]", ""},
		"all say nothing":         {[]string{"", ""}, "[]", ""},
		"the order of the oldest": {[]string{"IPv6 IPv4", "IPv4 IPv6"}, "[IPv6 IPv4]", ""},
		"one that does not count": {[]string{"IPv6 IPv4", "IPv4", "IPv6", "IPv4"}, "[IPv4]", "the set of IP families is that of cluster a, whose export is older, and another one in c"},
	} {
		var all []*clustermesh.ServiceExport
		for i, families := range test.families {
			all = append(all, of(string(rune('a'+i)), i, traffic(families, "", "")))
		}
		m, conflicts := originals.merge(all), ""
		for _, c := range m.conflicts {
			conflicts += c.text
		}
		if got := fmt.Sprint(m.spec.IPFamilies); got != test.want || conflicts != test.conflicts {
			t.Errorf("%s: %s with %q, want %s with %q", name, got, conflicts, test.want, test.conflicts)
		}
	}
}

// MCS-38: a derived Service is made with both IP families, and says which are supported. One that exists keeps its own, unless none of
// them is.
func TestFamilies(t *testing.T) {
	both, six, four := []corev1.IPFamily{"IPv4", "IPv6"}, []corev1.IPFamily{"IPv6"}, []corev1.IPFamily{"IPv4"}
	old, _, _ := release.Parse("1.18")
	for name, test := range map[string]struct {
		release   release.Release
		of, here  []corev1.IPFamily
		has       string // IP families of the derived Service, after the policy
		policy    string
		supported string
		verb      verb
	}{
		"a new one":                   {release.Newest(), nil, both, "", "PreferDualStack", "IPv4,IPv6", create},
		"a new one of 1.18":           {old, nil, both, "", "", "", create},
		"of families, in 1.18":        {old, six, both, "", "PreferDualStack", "", create},
		"one of them here":            {release.Newest(), both, six, "", "PreferDualStack", "IPv6", create},
		"another order":               {release.Newest(), []corev1.IPFamily{"IPv6", "IPv4"}, both, "PreferDualStack IPv4 IPv6", "", "IPv6,IPv4", keep},
		"more than are supported":     {release.Newest(), four, both, "PreferDualStack IPv4 IPv6", "", "IPv4", keep},
		"fewer than are supported":    {release.Newest(), both, both, "SingleStack IPv4", "", "IPv4,IPv6", keep},
		"none that is supported":      {release.Newest(), six, both, "SingleStack IPv4", "PreferDualStack", "IPv6", update},
		"none that can be had":        {release.Newest(), six, both, "PreferDualStack IPv4", "", "IPv6", keep},
		"none that is here":           {release.Newest(), six, four, "", "none", "", keep},
		"none that is here, any more": {release.Newest(), six, four, "SingleStack IPv6", "none", "", remove},
	} {
		s := &state{key: web, cluster: "c1", release: test.release, imported: newImport(), families: test.here}
		spec := &mcsv1alpha1.ServiceImportSpec{Type: mcsv1alpha1.ClusterSetIP, Ports: []mcsv1alpha1.ServicePort{http80}, IPFamilies: test.of}
		if policy, families, exists := strings.Cut(test.has, " "); exists {
			base := s.desired(&mcsv1alpha1.ServiceImportSpec{Type: mcsv1alpha1.ClusterSetIP, Ports: []mcsv1alpha1.ServicePort{http80}})
			base.Annotations[supportedFamilies], base.Spec.IPFamilyPolicy = test.supported, new(corev1.IPFamilyPolicy(policy))
			for f := range strings.FieldsSeq(families) {
				base.Spec.IPFamilies = append(base.Spec.IPFamilies, corev1.IPFamily(f))
			}
			s.derived = stored(t, base)
		}
		d, policy, supported := s.desired(spec), "none", ""
		if d != nil {
			if policy, supported = "", d.Annotations[supportedFamilies]; d.Spec.IPFamilyPolicy != nil {
				policy = string(*d.Spec.IPFamilyPolicy)
			}
		}
		if v := s.planDerived(d); policy != test.policy || supported != test.supported || v != test.verb {
			t.Errorf("%s: policy %s, supported %s and verb %d, want %s, %s and %d", name, policy, supported, v, test.policy, test.supported, test.verb)
		}
		if d != nil && len(d.Spec.IPFamilies) > 0 {
			t.Errorf("%s: families %v", name, d.Spec.IPFamilies)
		}
	}
}

// MCS-21 and MCS-38; number B12 of the contract's bgp.md: the addresses are those of supported families, in their order.
func TestAddresses(t *testing.T) {
	s := &state{families: []corev1.IPFamily{"IPv4", "IPv6"}, derived: &service{}}
	s.derived.Spec.ClusterIPs = []string{"10.96.0.11", "fd00::11"}
	for families, want := range map[string]string{"": "10.96.0.11 fd00::11", "IPv4": "10.96.0.11", "IPv6": "fd00::11", "IPv6 IPv4": "fd00::11 10.96.0.11"} {
		var spec mcsv1alpha1.ServiceImportSpec
		for f := range strings.FieldsSeq(families) {
			spec.IPFamilies = append(spec.IPFamilies, corev1.IPFamily(f))
		}
		if got := strings.Join(s.addresses(&spec), " "); got != want {
			t.Errorf("%s: %s, want %s", families, got, want)
		}
	}
}

// MCS-31: the condition of a ServiceImport; those of other types stay.
func TestImportConditions(t *testing.T) {
	for name, test := range map[string]struct {
		state   state
		refused refusal
		want    conditionText
		message string
	}{
		"ready":      {state{}, refusal{}, conditionText{"Ready", "True", "Ready"}, "exists"},
		"refused":    {state{}, refusal{failed, "why"}, conditionText{"Ready", "False", "Failed"}, "why"},
		"not global": {state{isLocal: true}, refusal{failed, "why"}, conditionText{"Ready", "False", "NamespaceNotGlobal"}, "not global"},
		"huge":       {state{}, refusal{failed, strings.Repeat("é", 100_000)}, conditionText{"Ready", "False", "Failed"}, "é…"},
	} {
		got := test.state.importConditions(test.refused)
		if len(got) != 1 || textsOf(got)[0] != test.want || !strings.Contains(got[0].Message, test.message) || len(got[0].Message) > 32768 || !utf8.ValidString(got[0].Message) {
			t.Errorf("%s: %v", name, textsOf(got))
		}
		all := []metav1.Condition{{Type: "Other", Status: metav1.ConditionTrue}}
		if !setConditions(&all, importConditionTypes, got) || setConditions(&all, importConditionTypes, got) || len(all) != 2 {
			t.Errorf("%s: set are %v", name, textsOf(all))
		}
	}
}

// MCS-50: what an original has said of the same stays, until there is something else to say.
func TestConditionsOfOriginals(t *testing.T) {
	for ours, theirs := range byOriginals {
		want := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Exported", Message: ours}
		has := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: theirs.reason, Message: theirs.message}
		for _, test := range []struct {
			what    string
			change  func(has, want *metav1.Condition)
			changed bool
		}{
			{"the same", func(_, _ *metav1.Condition) {}, false},
			{"another status", func(has, _ *metav1.Condition) { has.Status = metav1.ConditionFalse }, true},
			{"another reason", func(has, _ *metav1.Condition) { has.Reason = "Other" }, true},
			{"more to say", func(_, want *metav1.Condition) { want.Message += "; a port is left out" }, true},
		} {
			has, want := has, want
			test.change(&has, &want)
			all := []metav1.Condition{has}
			if got := setConditions(&all, []string{"Ready"}, []metav1.Condition{want}); got != test.changed || !got && all[0] != has {
				t.Errorf("%q, %s: changed %v, %+v", ours, test.what, got, all)
			}
		}
	}
}

// MCS-26: a permission that is optional is no failure, alone or beside others of its kind.
func TestWithoutPermission(t *testing.T) {
	lacks := &k8s.PermissionError{Permission: "update serviceexports/status", Err: errors.New("forbidden")}
	var s state
	if s.withoutPermission(nil) != nil || s.withoutPermission(errors.New("another")) == nil || s.denied {
		t.Error("other results are changed")
	}
	if err := s.withoutPermission(fmt.Errorf("writing: %w", lacks)); err != nil || !s.denied {
		t.Error(err)
	}
}
