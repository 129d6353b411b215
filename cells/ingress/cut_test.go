// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// ING-29, K8S-24: an Ingress that is cut has its hosts, the class and its settings, and nothing that is served.
func TestCut(t *testing.T) {
	text := `
metadata:
  name: large
  namespace: shop
  labels: {team: shop}
  annotations: {ingress.cilium.io/loadbalancer-mode: shared}
spec:
  ingressClassName: cilium
  defaultBackend: {service: {name: front, port: {number: 80}}}
  tls: [{hosts: [h0.example.com], secretName: key}]
  rules:
`
	for i := range mostHosts + 10 {
		text += fmt.Sprintf("  - {host: h%d.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}}\n", i)
	}
	i := decode(t, text)
	whole, before := slim.SizeOf(i), inputOf(i)
	if !slim.CutDown(i, whole) {
		t.Fatal("it cannot be cut")
	}
	if inputOf(i) == before {
		t.Error("it is ingested as before")
	}
	if n := slim.SizeOf(i); n > whole/2 || i.Spec.TLS != nil || i.Spec.DefaultBackend != nil || i.Labels != (slim.Labels{}) {
		t.Errorf("%d bytes are kept of %d: %+v", n, whole, i.Spec)
	}
	if !isManaged(i, false) || !settingsOf(i, defaultConfig).shared {
		t.Error("it is another controller's, or has another mode")
	}
	in := ingest(i, settingsOf(i, defaultConfig), defaultConfig.sharedPorts(), envoy.Name{}, func(backendPort) found { return withPort })
	if len(in.model.HTTP) != mostHosts+1 || len(in.model.Passthrough) != 0 {
		t.Fatalf("it has %d listeners", len(in.model.HTTP))
	}
	for n, l := range in.model.HTTP {
		want := fmt.Sprintf("h%d.example.com", n)
		if n == mostHosts {
			want = "" // of the default backend
		}
		if !l.Absent || l.TLS || len(l.Routes) > 0 || l.Hostname != want || l.Claim.Of.Name != "large" {
			t.Errorf("listener %d is %+v", n, l)
		}
	}
	if len(in.notices) != 1 || in.notices[0].Reason != "LeftOut" || !strings.Contains(in.notices[0].Message, "GOMEMLIMIT") {
		t.Errorf("it says %v", in.notices)
	}
	if m := in.absent(i); len(m.HTTP) != mostHosts+1 {
		t.Errorf("left out it keeps %d hosts", len(m.HTTP))
	}
}

// longHost is a host of 253 characters.
func longHost(n int) string {
	part := "." + strings.Repeat("x", 60)
	host := fmt.Sprintf("h%06d", n) + part + part + part + "."
	return host + strings.Repeat("y", 253-len(host))
}

// largest is an Ingress with as much of all as an API server accepts, and more, of a class and with annotations.
func largest(class string, annotations map[string]string, host func(int) string) *ingress {
	i := &ingress{}
	i.Namespace, i.Name, i.UID, i.CreationTimestamp = slim.MakeString(strings.Repeat("n", 63)), strings.Repeat("i", 253), slim.ParseUID("6f9619ff-8b86-4d01-b42d-00c04fc964fe"), 100
	i.Annotations.Labels = slim.MakeLabels(annotations)
	labels := map[string]string{}
	for n := range 5000 {
		labels[fmt.Sprintf("example.com/%050d", n)] = fmt.Sprintf("%060d", n)
		paths := []networkingv1.HTTPIngressPath{{Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web"}}}}
		i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: host(n), IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}})
		i.Spec.TLS = append(i.Spec.TLS, networkingv1.IngressTLS{Hosts: []string{host(n + 100_000)}, SecretName: strings.Repeat("s", 253)})
		i.Status.LoadBalancer.Ingress = append(i.Status.LoadBalancer.Ingress, networkingv1.IngressLoadBalancerIngress{Hostname: host(n)})
	}
	i.Labels, i.Spec.IngressClassName = slim.MakeLabels(labels), &class
	i.Spec.DefaultBackend = &i.Spec.Rules[0].HTTP.Paths[0].Backend
	return i
}

// ING-29, K8S-24; K1 and K3 of the contract's tenants.md: of an Ingress that is cut less than 32 KiB are kept, whatever it has, and always its class, its age, its mode,
// its port of the nodes, and some of its hosts.
func TestCutIsSmall(t *testing.T) {
	const most = 32 << 10
	const key, value = 200, 12 << 10 // together 256 KiB
	full := func(text string) map[string]string {
		all := map[string]string{classAnnotation: text}
		for _, name := range settingNames {
			all[prefix+name], all[alias+name] = text, text
		}
		return all
	}
	many := map[string]string{prefix + "host-listener-port": "9090", prefix + "loadbalancer-mode": "dedicated"}
	for n := range 1200 {
		many[fmt.Sprintf("%s%0*d", prefix, key, n)] = "x"
	}
	one := map[string]string{prefix + "host-listener-port": "9090", alias + "loadbalancer-mode": "dedicated", "example.com/large": strings.Repeat("x", 250<<10)}
	short := func(n int) string { return fmt.Sprintf("h%0*d.t", mostHostBytes/mostHosts-3, n) }
	config := defaultConfig
	config.IngressHostNetworkEnabled, config.IngressDefaultLBMode = true, sharedMode
	for name, test := range map[string]struct {
		class       string
		annotations map[string]string
		host        func(int) string
		isManaged   bool
		isDedicated bool
		hosts       int
	}{
		"settings of the size of an object": {class, full(strings.Repeat("x", value)), longHost, false, false, 64},
		"settings, and many short hosts":    {strings.Repeat("c", 1<<20), full(strings.Repeat("x", value)), short, false, false, mostHosts},
		"many annotations":                  {class, many, longHost, true, true, 64},
		"a large one, and another class":    {"another", one, short, false, true, mostHosts},
		"a class that begins as this one":   {class + strings.Repeat(" ", 300), one, longHost, false, true, 64},
		"no class":                          {"", one, longHost, true, true, 64},
	} {
		i := largest(test.class, test.annotations, test.host)
		if whole := slim.SizeOf(i); whole < 1<<20 || !slim.CutDown(i, whole) {
			t.Fatalf("%s: of %d bytes it is not cut", name, whole)
		}
		if size := slim.SizeOf(i); size >= most {
			t.Errorf("%s: %d bytes are kept", name, size)
		}
		if got := isManaged(i, true); got != test.isManaged || i.CreationTimestamp != 100 || i.Spec.IngressClassName == nil {
			t.Errorf("%s: managed %t, created %v, class %v", name, got, i.CreationTimestamp, i.Spec.IngressClassName)
		}
		if s := settingsOf(i, config); s.shared == test.isDedicated || test.isDedicated && s.hostPort != 9090 {
			t.Errorf("%s: shared %t, at port %d", name, s.shared, s.hostPort)
		}
		if n := len(i.Spec.Rules); n != test.hosts+1 || i.Spec.Rules[0].Host != test.host(0) || i.Spec.Rules[n-1].Host != "" {
			t.Errorf("%s: it keeps %d rules, want %d hosts and that for all", name, n, test.hosts)
		}
	}
}

// ING-29: what the annotations of an Ingress mean does not change as it is cut.
func TestCutKeepsSettings(t *testing.T) {
	values := map[string]string{
		"loadbalancer-mode": "dedicated", "loadbalancer-class": "example.com/lb", "request-timeout": "7s", "tls-passthrough": "enabled", "force-https": "disabled",
		"service-type": "NodePort", "service-external-traffic-policy": "Local", "insecure-node-port": "30080", "secure-node-port": "30443", "host-listener-port": "9090",
	}
	if len(values) != len(settingNames) {
		t.Fatalf("%d settings have values, of %d", len(values), len(settingNames))
	}
	config := defaultConfig
	config.IngressHostNetworkEnabled = true
	plain := settingsOf(&ingress{}, config)
	for _, begin := range []string{prefix, alias} {
		i := &ingress{}
		annotations := map[string]string{classAnnotation: class, "example.com/other": "x"}
		for name, value := range values {
			annotations[begin+name] = value
		}
		i.Annotations.Labels = slim.MakeLabels(annotations)
		whole := settingsOf(i, config)
		if reflect.DeepEqual(whole, plain) {
			t.Errorf("%s: no annotation counts", begin)
		}
		if !slim.CutDown(i, 1<<20) || !reflect.DeepEqual(settingsOf(i, config), whole) || !isManaged(i, false) || i.Annotations.Has("example.com/other") {
			t.Errorf("%s: cut it has %+v, and %v", begin, settingsOf(i, config), i.Annotations)
		}
	}
}

// namesOf are the hosts that an Ingress has or claims.
func namesOf(m envoy.Model) (names []string) {
	for _, l := range m.HTTP {
		names = append(names, l.Hostname)
	}
	for _, p := range m.Passthrough {
		names = append(names, p.Hostnames...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ING-29, ENV-33; K1 of the contract's tenants.md: an Ingress that is cut has the names that it had whole, and a younger Ingress of another namespace gets nothing there.
func TestCutNamesTheSame(t *testing.T) {
	const to = "http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}"
	config := defaultConfig
	config.IngressDefaultLBMode = sharedMode
	c := &controller{params: params{Config: config, Cluster: cluster.DefaultConfig, Envoy: envoyres.Config{
		IngressSecretsNamespace: "cilium-secrets", ProxyIdleTimeoutSeconds: 60, ProxyStreamIdleTimeoutSeconds: 300,
	}}}
	ingested := func(i *ingress) envoy.Model {
		return ingest(i, settingsOf(i, config), config.sharedPorts(), envoy.Name{}, func(backendPort) found { return withPort }).model
	}
	for name, test := range map[string]struct {
		annotations, spec string
		want              string // with spaces between them
	}{
		"rules":                          {"", "rules: [{host: b.test, " + to + "}, {host: a.test, " + to + "}]", "a.test b.test"},
		"a wildcard":                     {"", "rules: [{host: '*.a.test', " + to + "}]", "*.a.test"},
		"rules of one host":              {"", "rules: [{host: a.test, " + to + "}, {host: a.test, " + to + "}]", "a.test"},
		"a rule without paths":           {"", "rules: [{host: a.test}]", "a.test"},
		"a rule without a host":          {"", "rules: [{" + to + "}]", "all"},
		"one without a host or paths":    {"", "rules: [{}, {host: a.test, " + to + "}]", "a.test"},
		"one without a backend":          {"", "rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {resource: {kind: Bucket, name: x}}}]}}, {host: a.test}]", "a.test"},
		"TLS alone":                      {"", "tls: [{hosts: [a.test, b.test], secretName: key}]", "a.test b.test"},
		"TLS without a secret":           {"", "tls: [{hosts: [a.test]}]\nrules: [{host: b.test, " + to + "}]", "a.test b.test"},
		"TLS of a rule":                  {"", "tls: [{hosts: [a.test, a.test], secretName: key}, {hosts: [a.test], secretName: other}]\nrules: [{host: a.test, " + to + "}]", "a.test"},
		"TLS and a rule without a host":  {"", "tls: [{hosts: [a.test], secretName: key}]\nrules: [{" + to + "}]", "all a.test"},
		"a default backend":              {"", "defaultBackend: {service: {name: front, port: {number: 80}}}", "all"},
		"one that is no Service":         {"", "defaultBackend: {resource: {kind: Bucket, name: x}}\nrules: [{host: a.test, " + to + "}]", "a.test"},
		"a default backend and the rest": {"", "defaultBackend: {service: {name: front, port: {number: 80}}}\ntls: [{hosts: [c.test], secretName: key}]\nrules: [{host: a.test}, {" + to + "}]", "all a.test c.test"},
		"no name of DNS":                 {"", "rules: [{host: 'a.*.test', " + to + "}, {host: a.test, " + to + "}]", "a.test"},
		"passed through": {
			"ingress.cilium.io/tls-passthrough: enabled",
			"defaultBackend: {service: {name: front, port: {number: 80}}}\ntls: [{hosts: [c.test], secretName: key}]\nrules: [{host: a.test, " + to + "}, {host: b.test}, {" + to + "}]", "a.test b.test",
		},
	} {
		text := "metadata: {name: large, namespace: older, annotations: {" + test.annotations + "}}\nspec:\n  ingressClassName: cilium\n  " + strings.ReplaceAll(test.spec, "\n", "\n  ")
		whole, cut := decode(t, text), decode(t, text)
		if !slim.CutDown(cut, 1<<20) {
			t.Fatal("it cannot be cut")
		}
		was, is := namesOf(ingested(whole)), namesOf(ingested(cut))
		want := strings.Fields(test.want)
		if n := slices.Index(want, "all"); n >= 0 {
			want[n] = ""
		}
		if !slices.Equal(was, want) || !slices.Equal(is, want) {
			t.Errorf("%s: cut it has %q, and whole %q", name, is, was)
		}
		younger := &ingress{}
		younger.Namespace, younger.Name, younger.CreationTimestamp = slim.MakeString("younger"), "web", 100
		backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
		for _, host := range is {
			paths := []networkingv1.HTTPIngressPath{{Path: "/longer", PathType: new(networkingv1.PathTypeExact), Backend: backend}}
			younger.Spec.Rules = append(younger.Spec.Rules, networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}})
			if younger.Spec.TLS = append(younger.Spec.TLS, networkingv1.IngressTLS{Hosts: []string{host}, SecretName: "key"}); host == "" {
				younger.Spec.DefaultBackend = &backend
			}
		}
		m, more := ingested(cut), ingested(younger)
		m.HTTP = append(m.HTTP, more.HTTP...)
		translated, err := new(envoy.Translator).Translate(m, c.sharedOptions())
		if err != nil {
			t.Fatal(err)
		}
		if spec, err := envoy.Encode(translated.Spec); err != nil || strings.Contains(string(spec.JSON), "younger") {
			t.Errorf("%s: a younger one gets %s, %v", name, spec.JSON, err)
		}
		if len(translated.Problems) == 0 {
			t.Errorf("%s: a younger one does not learn why", name)
		}
	}
}

// ING-25, ING-29; K1 and K3 of the contract's tenants.md: with the class as the default one, on the network of the nodes, an Ingress of another class that is cut keeps no port from
// others. One of this class has its port by its age, and what there is of its load balancer stays.
func TestCutAtPortsOfNodes(t *testing.T) {
	foreign := largest("another", map[string]string{prefix + "host-listener-port": "9090", "example.com/large": strings.Repeat("x", 250<<10)}, longHost)
	mine := largest(class, map[string]string{prefix + "host-listener-port": "9091", "example.com/large": strings.Repeat("x", 250<<10)}, longHost)
	mine.Name = "mine"
	for _, i := range []*ingress{foreign, mine} {
		if !slim.CutDown(i, slim.SizeOf(i)) {
			t.Fatal("it cannot be cut")
		}
	}
	at := func(port string, created slim.Time) *ingress {
		i := &ingress{}
		i.Namespace, i.Name, i.CreationTimestamp, i.Spec.IngressClassName = slim.MakeString("shop"), fmt.Sprintf("at-%s-%d", port, created), created, new(class)
		i.Annotations.Labels = slim.MakeLabels(map[string]string{prefix + "host-listener-port": port})
		return i
	}
	all, classes, configs := newLocal[ingress](t), newLocal[ingressClass](t), newLocal[envoyres.Object](t)
	byDefault := &ingressClass{}
	byDefault.Name, byDefault.Annotations.Labels = class, slim.MakeLabels(map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"})
	younger, late, early := at("9090", 200), at("9091", 200), at("9091", 50)
	all.Replace(foreign, mine, younger, late, early)
	classes.Replace(byDefault)
	configs.Replace()
	c := &controller{params: params{Config: defaultConfig}}
	c.Config.IngressHostNetworkEnabled = true
	tree := health.NewTree()
	c.reports = envoyres.NewReports("Ingress", nil, slog.New(slog.DiscardHandler), tree.Reporter("ingress"))
	c.conflicts = envoyres.NewConflicts(newMetrics(metrics.Factory{}).Conflicts, tree.Reporter("conflicts"), conflictsText)
	for _, open := range []func() error{
		func() (err error) { c.ingresses, err = all.Store(t.Context()); return err },
		func() (err error) { c.classes, err = classes.Store(t.Context()); return err },
		func() (err error) { c.configs, err = configs.Store(t.Context()); return err },
	} {
		if err := open(); err != nil {
			t.Fatal(err)
		}
	}
	if text := c.hostPortProblem(younger, settingsOf(younger, c.Config)); !c.byDefault() || text != "" {
		t.Errorf("beside one of another class: %q", text)
	}
	if text := c.hostPortProblem(early, settingsOf(early, c.Config)); text != "" {
		t.Errorf("the older one: %q", text)
	}
	all.Delete(early.Key())
	c.owners.forget()
	if text := c.hostPortProblem(late, settingsOf(late, c.Config)); !strings.Contains(text, "belongs to the Ingress "+mine.Key().String()) {
		t.Errorf("the younger one: %q", text)
	}
	// Without a client nothing can be written or deleted.
	if r, err := c.reconcileDedicated(t.Context(), mine, settingsOf(mine, c.Config), nil); err != nil || r.Reason != isLarge {
		t.Errorf("cut: %+v, %v", r, err)
	}
}

// unknownSecrets is a recorder of what is not known.
type unknownSecrets struct {
	secretref.Recorder
	names []string
}

func (u *unknownSecrets) Set(corev1.ObjectReference, ...secretref.Object) {}
func (u *unknownSecrets) SetUnknown(from corev1.ObjectReference) {
	u.names = append(u.names, from.Name)
}

// ING-29, SEC-19: of an Ingress of another class that is cut it is known that it has no references.
func TestSecretsOfCutIngresses(t *testing.T) {
	for _, byDefault := range []bool{false, true} {
		s, r := &secretSource{byDefault: byDefault}, &unknownSecrets{}
		for _, of := range []string{class, "another", ""} {
			i := largest(of, nil, longHost)
			if i.Name = "of-" + of; !slim.CutDown(i, slim.SizeOf(i)) {
				t.Fatal("it cannot be cut")
			}
			s.record(i, r)
		}
		want := []string{"of-" + class}
		if byDefault {
			want = append(want, "of-")
		}
		if !slices.Equal(r.names, want) {
			t.Errorf("by default %t: %q", byDefault, r.names)
		}
	}
}

// newLocal is a stream without objects.
func newLocal[T any](t *testing.T) *stream.Local[T] {
	t.Helper()
	all, err := stream.NewLocal[T]()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ING-29, K8S-24: a Service that is cut has all ports: the Ingresses that refer to it stay.
func TestCutService(t *testing.T) {
	all, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{}
	s.Name, s.Spec.Ports = "web", []servicePort{{Port: 80}}
	all.Replace(s)
	c := &controller{}
	if c.services, err = all.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	of := backendPort{envoy.Name{Name: "web"}, "81"}
	if is := c.find(of); is != withoutPort {
		t.Errorf("whole it is %v", is)
	}
	cut := *s
	if !slim.CutDown(&cut, 100<<10) {
		t.Fatal("it cannot be cut")
	}
	all.Replace(&cut)
	if is := c.find(of); is != withPort {
		t.Errorf("cut it is %v", is)
	}
}

// ING-29, K8S-24: of a Service the first addresses are kept, and none of one that is cut whose status is large. Then the Ingress keeps its own.
func TestAddressesOfLargeServices(t *testing.T) {
	s := &service{}
	s.Namespace, s.Name = slim.MakeString("shop"), "web"
	for i := range 100_000 {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)})
	}
	s.Trim()
	if size := slim.SizeOf(s); len(statusOf(s)) > mostAddresses || size > 128<<10 {
		t.Errorf("%d addresses, %d bytes", len(statusOf(s)), size)
	}
	s.Status.Conditions = []metav1.Condition{{Type: "example.com/Large", Message: strings.Repeat("x", 1<<20)}}
	if !slim.CutDown(s, slim.SizeOf(s)) || slim.SizeOf(s) > 1<<10 {
		t.Errorf("cut %d bytes are kept", slim.SizeOf(s))
	}
	all, err := stream.NewLocal[service]()
	if err != nil {
		t.Fatal(err)
	}
	all.Replace(s)
	c := &controller{}
	if c.services, err = all.Store(t.Context()); err != nil {
		t.Fatal(err)
	}
	i := &ingress{}
	i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "10.0.0.1"}}
	if err := c.writeStatus(t.Context(), i, s.Key()); err != nil { // without a client nothing can be written
		t.Error(err)
	}
}
