// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	envoyres "github.com/skep-operator/skep/resources/envoy"
)

func decode(t *testing.T, text string) *ingress {
	t.Helper()
	i := &ingress{}
	if err := yaml.Unmarshal([]byte(text), i); err != nil {
		t.Fatal(err)
	}
	return i
}

// rig translates Ingresses without a server.
type rig struct {
	*testing.T
	config        Config
	cluster       cluster.Config
	defaultSecret envoy.Name
	missing       []string // Services
	withoutPorts  bool     // the Services have none
}

func newRig(t *testing.T) *rig {
	return &rig{T: t, config: defaultConfig, cluster: cluster.DefaultConfig}
}

// translate translates Ingresses together. It returns the configuration, nil if it is empty, and the reasons of notices.
func (r *rig) translate(texts ...string) (*envoytest.Config, []string) {
	r.Helper()
	c := &controller{params: params{Config: r.config, Cluster: r.cluster, Envoy: envoyres.Config{
		IngressSecretsNamespace: "cilium-secrets", ProxyIdleTimeoutSeconds: 60, ProxyStreamIdleTimeoutSeconds: 300,
	}}}
	var m envoy.Model
	var reasons []string
	for _, text := range texts {
		i := decode(r.T, text)
		s := settingsOf(i, r.config)
		p := r.config.sharedPorts()
		if r.config.IngressHostNetworkEnabled && !s.shared {
			p = ports{s.hostPort, s.hostPort, s.hostPort}
		}
		in := ingest(i, s, p, r.defaultSecret, func(of backendPort) found {
			switch {
			case slices.Contains(r.missing, of.Name.Name):
				return noService
			case r.withoutPorts:
				return withoutPort
			}
			return withPort
		})
		m.HTTP = append(m.HTTP, in.model.HTTP...)
		m.Passthrough = append(m.Passthrough, in.model.Passthrough...)
		for _, n := range slices.Concat(s.notices, in.notices) {
			reasons = append(reasons, n.Reason)
		}
	}
	o := c.options(serviceKey(decode(r.T, texts[0]).Key()))
	if r.config.IngressDefaultLBMode == sharedMode {
		o = c.sharedOptions()
	}
	t, err := new(envoy.Translator).Translate(m, o)
	if err != nil {
		r.Fatal(err)
	}
	for _, p := range t.Problems {
		reasons = append(reasons, "NotTranslated of "+p.Source.String())
	}
	if t.Empty {
		return nil, reasons
	}
	verified, err := envoytest.Verify(t.Spec)
	if err != nil {
		r.Fatal(err)
	}
	return verified, reasons
}

// routes are the routes of a host as "match → action".
func routes(c *envoytest.Config, table, host string) (all []string) {
	for _, v := range c.Tables["listener-"+table].GetVirtualHosts() {
		if v.Name != host {
			continue
		}
		for _, r := range v.Routes {
			match := r.Match.GetPath() + r.Match.GetPrefix() + r.Match.GetPathSeparatedPrefix() + r.Match.GetSafeRegex().GetRegex()
			action := r.GetRoute().GetCluster()
			for _, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
				action += fmt.Sprintf("%s=%d ", w.Name, w.Weight.GetValue())
			}
			if r.GetRedirect().GetHttpsRedirect() {
				action = "https"
			}
			if r.GetDirectResponse() != nil {
				action = fmt.Sprint(r.GetDirectResponse().Status)
			}
			if d := r.GetRoute().GetTimeout(); d != nil {
				action += " " + d.AsDuration().String()
			}
			all = append(all, match+" → "+strings.TrimSpace(action))
		}
	}
	return all
}

func check(t *testing.T, rule string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", rule, diff)
	}
}

// chains are the filter chains as "server names: secrets or cluster".
func chains(t *testing.T, c *envoytest.Config) (all []string) {
	t.Helper()
	for _, chain := range c.Listeners["listener"].FilterChains {
		m := chain.FilterChainMatch
		text := fmt.Sprint(m.TransportProtocol, m.ServerNames)
		if s := chain.TransportSocket.GetTypedConfig(); s != nil {
			text += " " + s.String()
		}
		all = append(all, text)
	}
	return all
}

const withTLS = `
metadata: {name: web, namespace: shop, annotations: {ANNOTATIONS}}
spec:
  ingressClassName: cilium
  tls: [{hosts: [shop.example.com], secretName: shop-tls}]
  rules:
  - host: shop.example.com
    http: {paths: [{path: /api, pathType: Prefix, backend: {service: {name: api, port: {number: 80}}}}]}
`

func annotated(text string, annotations ...string) string {
	return strings.ReplaceAll(text, "ANNOTATIONS", strings.Join(annotations, ", "))
}

// ING-E7, ING-E8, ING-E14: redirects to HTTPS, timeouts, the default secret.
func TestSettings(t *testing.T) {
	r := newRig(t)
	c, _ := r.translate(annotated(withTLS))
	check(t, "ING-11", routes(c, "insecure", "shop.example.com"), "/api → https")
	check(t, "ING-11", routes(c, "secure", "shop.example.com"), "/api → shop:api:80")
	c, _ = r.translate(annotated(withTLS, "ingress.cilium.io/force-https: disabled"))
	check(t, "ING-E7", routes(c, "insecure", "shop.example.com"), "/api → shop:api:80")

	r.config.IngressDefaultTimeout = time.Minute
	c, _ = r.translate(annotated(withTLS, "ingress.cilium.io/request-timeout: 5s"))
	check(t, "ING-E8", routes(c, "secure", "shop.example.com"), "/api → shop:api:80 5s")
	for _, bad := range []string{"soon", "-5s"} {
		c, reasons := r.translate(annotated(withTLS, "ingress.cilium.io/request-timeout: "+bad))
		check(t, "ING-E8", routes(c, "secure", "shop.example.com"), "/api → shop:api:80 1m0s")
		check(t, "ING-E8", reasons, "InvalidAnnotation")
	}

	r = newRig(t)
	without := strings.ReplaceAll(annotated(withTLS), ", secretName: shop-tls", "")
	c, reasons := r.translate(without)
	check(t, "ING-F6", routes(c, "insecure", "shop.example.com"), "/api → shop:api:80")
	check(t, "ING-F6", chains(t, c), "raw_buffer[]")
	check(t, "ING-F6", reasons, "NoSecret")
	r.defaultSecret = envoy.Name{Namespace: "infra", Name: "wild"}
	c, _ = r.translate(without)
	if text := chains(t, c)[1]; !strings.Contains(text, `"cilium-secrets/infra-wild"`) {
		t.Errorf("ING-E14: %s", text)
	}
}

const withDefault = `
metadata: {name: web, namespace: shop}
spec:
  defaultBackend: {service: {name: fallback, port: {number: 80}}}
  tls: [{hosts: [shop.example.com, other.example.com], secretName: shop-tls}]
  rules:
  - host: shop.example.com
    http: {paths: [{path: /api, pathType: Prefix, backend: {service: {name: api, port: {name: web}}}}]}
`

// ING-E10 and ING-F5: the default backend is the last route of each host.
func TestDefaultBackend(t *testing.T) {
	r := newRig(t)
	c, reasons := r.translate(withDefault)
	check(t, "ING-E10", routes(c, "secure", "shop.example.com"), "/api → shop:api:web", "/ → shop:fallback:80")
	check(t, "ING-E10", routes(c, "insecure", "shop.example.com"), "/api → https", "/ → https")
	check(t, "ING-E10", routes(c, "insecure", "*"), "/ → shop:fallback:80")
	check(t, "ING-12", routes(c, "secure", "other.example.com"), "/ → shop:fallback:80")
	check(t, "ING-12", routes(c, "insecure", "other.example.com"), "/ → https")
	check(t, "ING-E10", reasons)

	other := `
metadata: {name: z, namespace: a}
spec: {rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 1}}}}]}}]}`
	c, _ = r.translate(withDefault, other)
	check(t, "ING-13", routes(c, "secure", "shop.example.com"), "/api → shop:api:web", "/ → shop:fallback:80")
	check(t, "ING-13", routes(c, "insecure", "shop.example.com"), "/api → https", "/ → https")
	plain := strings.ReplaceAll(withDefault, "tls:", "x:")
	c, _ = r.translate(plain, other)
	check(t, "ING-13: a default backend does not take from a rule", routes(c, "insecure", "shop.example.com"), "/api → shop:api:web", "/ → a:s:1")
}

// ING-E13 and ING-F7: Ingresses that share a host.
func TestSharedHost(t *testing.T) {
	one := func(namespace, name, secret string) string {
		return fmt.Sprintf(`
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  tls: [{hosts: [h], secretName: %[3]s}]
  rules: [{host: h, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s%[2]s, port: {number: 80}}}}]}}]`, namespace, name, secret)
	}
	r := newRig(t)
	c, _ := r.translate(one("a", "v", "t1"), one("b", "w", "t2"))
	check(t, "ING-E13", routes(c, "secure", "h"), "/ → a:sv:80=1 b:sw:80=1")
	got := chains(t, c)
	if len(got) != 2 || !strings.Contains(got[1], "a-t1") || !strings.Contains(got[1], "b-t2") {
		t.Errorf("ING-F7: %q", got)
	}
}

// ING-E2, ING-F1, ING-F4, ING-15, ING-26: TLS that is passed through, and what cannot be served.
func TestLeftOut(t *testing.T) {
	r := newRig(t)
	pass := `
metadata: {name: pt, namespace: shop, annotations: {io.cilium.ingress/tls-passthrough: "1"}}
spec:
  defaultBackend: {service: {name: d, port: {number: 1}}}
  rules:
  - {host: pt.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: tls-app, port: {number: 8443}}}}, {path: /x, pathType: Prefix, backend: {service: {name: x, port: {number: 1}}}}]}}
  - {http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: last, port: {number: 1}}}}]}}
`
	c, reasons := r.translate(pass)
	check(t, "ING-E2", chains(t, c), "tls[pt.example.com]")
	check(t, "ING-E2", reasons, "UnsupportedBackend", "UnsupportedPath", "RuleWithoutHost")
	if len(c.Tables) != 0 || len(c.Clusters) != 1 || c.Clusters["shop:tls-app:8443"].TypedExtensionProtocolOptions != nil || !slices.Equal(c.Spec.Services[0].Ports, []int{443}) {
		t.Errorf("ING-E2: %v", c.Spec)
	}
	c, reasons = r.translate(pass, strings.ReplaceAll(annotated(withTLS), "shop.example.com", "pt.example.com"))
	check(t, "ING-15: TLS of a host is terminated, or passed through", reasons, "UnsupportedBackend", "UnsupportedPath", "RuleWithoutHost", "NotTranslated of shop/pt")
	if len(c.Listeners["listener"].FilterChains) != 2 {
		t.Error("ING-15: two filter chains for a host")
	}

	c, reasons = r.translate(`
metadata: {name: web, namespace: shop}
spec:
  rules:
  - {host: none.example.com}
  - host: h
    http:
      paths:
      - {path: /untyped, backend: {service: {name: a, port: {number: 1}}}}
      - {path: /bucket, pathType: Exact, backend: {resource: {kind: Bucket, name: b}}}
      - {path: "/bad[", pathType: ImplementationSpecific, backend: {service: {name: a, port: {number: 1}}}}
      - {path: "/query?", pathType: Prefix, backend: {service: {name: a, port: {number: 1}}}}
      - {path: "", pathType: ImplementationSpecific, backend: {service: {name: a, port: {number: 1}}}}
`)
	check(t, "ING-F1", routes(c, "insecure", "h"), "/ → shop:a:1")
	check(t, "ING-F1", reasons, "RuleWithoutPaths", "PathWithoutType", "UnsupportedBackend", "NotTranslated", "NotTranslated")

	c, reasons = r.translate(strings.Replace(`
metadata: {name: web, namespace: shop}
spec:
  rules:
  - host: h
    http:
      paths:
      - {path: "LONG", pathType: ImplementationSpecific, backend: {service: {name: a, port: {number: 1}}}}
      - {path: "/", pathType: Prefix, backend: {service: {name: a, port: {number: 1}}}}
`, "LONG", strings.Repeat(".{1000}", 2800), 1))
	check(t, "ING-E16", routes(c, "insecure", "h"), "/ → shop:a:1")
	check(t, "ING-E16", reasons, "NotTranslated")

	c, reasons = r.translate(`
metadata: {name: web, namespace: shop}
spec:
  tls: [{hosts: ["a.*.example.com"], secretName: t}, {secretName: t}]
  rules:
  - {host: "a.*.example.com", http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 1}}}}]}}
  - {host: "*.example.com", http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: b, port: {number: 1}}}}]}}
`)
	check(t, "ING-26, ING-12", reasons, "NotTranslated", "HostWithoutRule")
	check(t, "ING-26", chains(t, c), "raw_buffer[]")
	check(t, "ING-26", routes(c, "insecure", "*.example.com"), "/ → shop:b:1")

	if c, _ = r.translate("metadata: {name: web, namespace: shop}"); c != nil {
		t.Error("ING-F4: there is a configuration")
	}
	r.missing = []string{"api"}
	c, reasons = r.translate(annotated(withTLS))
	check(t, "ING-16", routes(c, "secure", "shop.example.com"), "/api → 503")
	check(t, "ING-16", reasons, "BackendNotFound")
	if len(c.Clusters)+len(c.Spec.BackendServices) != 0 {
		t.Error("ING-16: a cluster without a Service")
	}
	r.missing, r.withoutPorts = nil, true
	c, reasons = r.translate(annotated(withTLS))
	check(t, "ING-16", routes(c, "secure", "shop.example.com"), "/api → shop:api:80")
	check(t, "ING-16", reasons, "BackendPortNotFound")
}

// Number 26 of the contract's ingress.md; ING-3, ING-4 and ING-9: the Service of a load balancer, by the annotations.
func TestService(t *testing.T) {
	for name, test := range map[string]struct {
		annotations []string
		hostNetwork bool
		passthrough bool
		has         corev1.ServiceExternalTrafficPolicy // of a Service that exists
		want        string
		reasons     string
	}{
		"26: local by hand":     {has: "Local", want: "LoadBalancer Local http:80:0 https:443:0"},
		"26: as annotated":      {has: "Local", annotations: []string{"ingress.cilium.io/service-external-traffic-policy: Cluster"}, want: "LoadBalancer Cluster http:80:0 https:443:0"},
		"26: no load balancer":  {has: "Local", hostNetwork: true, annotations: []string{"ingress.cilium.io/host-listener-port: '9090'"}, want: "ClusterIP  http:80:0 https:443:0"},
		"by default":            {want: "LoadBalancer Cluster http:80:0 https:443:0"},
		"local traffic":         {annotations: []string{"ingress.cilium.io/service-external-traffic-policy: Local"}, want: "LoadBalancer Local http:80:0 https:443:0"},
		"ING-F2: a node port":   {annotations: []string{"io.cilium.ingress/service-type: NodePort", "ingress.cilium.io/secure-node-port: '30443'", "io.cilium.ingress/insecure-node-port: '30080'"}, passthrough: true, want: "NodePort Cluster https:443:30443"},
		"node ports":            {annotations: []string{"ingress.cilium.io/service-type: NodePort", "ingress.cilium.io/insecure-node-port: x"}, want: "NodePort Cluster http:80:0 https:443:0", reasons: "InvalidAnnotation"},
		"ING-F3: host network":  {annotations: []string{"ingress.cilium.io/host-listener-port: '9090'"}, hostNetwork: true, want: "ClusterIP  http:80:0 https:443:0"},
		"host network, no port": {hostNetwork: true, want: "ClusterIP  http:80:0 https:443:0", reasons: "InvalidAnnotation"},
		"a class":               {annotations: []string{"ingress.cilium.io/loadbalancer-class: io.cilium/bgp"}, want: "LoadBalancer Cluster io.cilium/bgp http:80:0 https:443:0"},
		"a class of no use":     {annotations: []string{"ingress.cilium.io/loadbalancer-class: c", "ingress.cilium.io/service-type: NodePort"}, want: "NodePort Cluster http:80:0 https:443:0"},
		"the newer name":        {annotations: []string{"ingress.cilium.io/service-type: LoadBalancer", "io.cilium.ingress/service-type: NodePort"}, want: "LoadBalancer Cluster http:80:0 https:443:0"},
		"unknown values":        {annotations: []string{"ingress.cilium.io/service-type: x", "ingress.cilium.io/service-external-traffic-policy: other", "ingress.cilium.io/loadbalancer-mode: z"}, want: "LoadBalancer Cluster http:80:0 https:443:0", reasons: "InvalidAnnotation InvalidAnnotation InvalidAnnotation"},
	} {
		c := defaultConfig
		c.IngressHostNetworkEnabled = test.hostNetwork
		s := settingsOf(decode(t, annotated(withTLS, test.annotations...)), c)
		m := envoy.Model{HTTP: []envoy.Listener{{}}}
		if test.passthrough {
			m = envoy.Model{Passthrough: []envoy.Passthrough{{}}}
		}
		got := &corev1.Service{}
		got.Spec.ExternalTrafficPolicy = test.has
		setService(got, s, test.hostNetwork, m, test.has == "")
		text := fmt.Sprint(got.Spec.Type, " ", got.Spec.ExternalTrafficPolicy)
		if got.Spec.LoadBalancerClass != nil {
			text += " " + *got.Spec.LoadBalancerClass
		}
		for _, p := range got.Spec.Ports {
			text += fmt.Sprintf(" %s:%d:%d", p.Name, p.Port, p.NodePort)
		}
		var reasons []string
		for _, n := range s.notices {
			reasons = append(reasons, n.Reason)
		}
		if text != test.want || strings.Join(reasons, " ") != test.reasons {
			t.Errorf("%s: %q %q, want %q %q", name, text, reasons, test.want, test.reasons)
		}
	}
}

// Numbers 27 and 28 of the contract's ingress.md; ING-E9 and ING-8: ports on the network of the nodes.
func TestHostNetwork(t *testing.T) {
	r := newRig(t)
	r.config.IngressHostNetworkEnabled, r.config.IngressHostNetworkNodeSelector = true, "a=b"
	addresses := func(texts ...string) (all []string) {
		c, _ := r.translate(texts...)
		l := c.Listeners["listener"]
		all = append(all, fmt.Sprint(l.Address.GetSocketAddress().GetAddress(), " ", l.Address.GetSocketAddress().GetPortValue()))
		for _, a := range l.AdditionalAddresses {
			all = append(all, fmt.Sprint(a.Address.GetSocketAddress().GetAddress(), " ", a.Address.GetSocketAddress().GetPortValue()))
		}
		if c.Spec.NodeSelector.MatchLabels["a"] != "b" {
			t.Errorf("ING-8: %v", c.Spec.NodeSelector)
		}
		return all
	}
	check(t, "ING-E9", addresses(annotated(withTLS, "ingress.cilium.io/host-listener-port: '9090'")), "0.0.0.0 9090", ":: 9090")
	check(t, "ING-8", addresses(annotated(withTLS)), "0.0.0.0 8080", ":: 8080")
	r.config.IngressDefaultLBMode, r.config.IngressHostNetworkPort, r.config.IngressHostNetworkHTTPSPort = sharedMode, 8000, 8443
	check(t, "ING-8", addresses(annotated(withTLS)), "0.0.0.0 8000", ":: 8000", "0.0.0.0 8443", ":: 8443")

	r.config.IngressHostNetworkPort, r.config.IngressHostNetworkHTTPPort, r.config.IngressHostNetworkHTTPSPort, r.config.IngressHostNetworkTLSPort = 0, 80, 443, 9443
	check(t, "27", addresses(annotated(withTLS), passedThrough("pt.example.com")), "0.0.0.0 80", ":: 80", "0.0.0.0 443", ":: 443", "0.0.0.0 9443", ":: 9443")
	c, reasons := r.translate(annotated(withTLS), passedThrough("shop.example.com"))
	check(t, "27: a host that another Ingress has TLS for", reasons, "NotTranslated of shop/pt")
	check(t, "27: and its routes", routes(c, "secure", "shop.example.com"), "/api → shop:api:80")
	if n := len(c.Listeners["listener"].FilterChains); n != 2 {
		t.Errorf("27: %d filter chains", n)
	}
	for of, want := range map[[4]uint32]ports{
		{}:                 {8080, 8080, 8080},
		{9000, 0, 9443, 0}: {9000, 9443, 9000},
		{0, 80, 443, 9443}: {80, 443, 9443},
	} {
		r.config.IngressHostNetworkPort, r.config.IngressHostNetworkHTTPPort, r.config.IngressHostNetworkHTTPSPort, r.config.IngressHostNetworkTLSPort = of[0], of[1], of[2], of[3]
		if got := r.config.sharedPorts(); got != want {
			t.Errorf("28: with the options %v the ports are %v, want %v", of, got, want)
		}
	}
}

// passedThrough is the Ingress pt, whose TLS is passed through.
func passedThrough(host string) string {
	return fmt.Sprintf(`
metadata: {name: pt, namespace: shop, annotations: {ingress.cilium.io/tls-passthrough: enabled}}
spec: {rules: [{host: %s, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: tls-app, port: {number: 8443}}}}]}}]}`, host)
}

// Numbers 29 and 30 of the contract's ingress.md; ING-28: the ports that lead to the shared listener, of which there is one whatever agents
// run.
func TestPortsOfSharedService(t *testing.T) {
	r := newRig(t)
	r.config.IngressDefaultLBMode = sharedMode
	plain := strings.Replace(annotated(withTLS), "tls:", "x:", 1)
	for _, of := range release.All() {
		r.cluster.Release = of
		for name, test := range map[string]struct {
			texts []string
			want  []int
		}{
			"without TLS":    {[]string{plain}, []int{80}},
			"with TLS":       {[]string{annotated(withTLS)}, []int{80, 443}},
			"passed through": {[]string{plain, passedThrough("pt.example.com")}, []int{80, 443}},
		} {
			if release.SharedHTTPSPort.In(of) {
				test.want = []int{80, 443}
			}
			c, _ := r.translate(test.texts...)
			if s := c.Spec.Services; len(s) != 1 || s[0].Listener != "" || len(c.Listeners) != 1 || !slices.Equal(s[0].Ports, test.want) {
				t.Errorf("%s in %s: %+v, %d listeners, want the ports %v", name, of, s, len(c.Listeners), test.want)
			}
		}
	}
	if !release.SharedHTTPSPort.In(release.Newest()) {
		t.Error("29: the newest release does without port 443")
	}
}

// managers are the connection managers of the listener.
func managers(t *testing.T, c *envoytest.Config) (all []*hcmv3.HttpConnectionManager) {
	t.Helper()
	for _, chain := range c.Listeners["listener"].FilterChains {
		m := &hcmv3.HttpConnectionManager{}
		if err := chain.Filters[0].GetTypedConfig().UnmarshalTo(m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// Number 24 of the contract's ingress.md; ENV-36: whose the address of a client is.
func TestProxyInFront(t *testing.T) {
	r := newRig(t)
	for _, test := range []struct {
		remote bool
		hops   uint32
	}{{defaultConfig.IngressUseRemoteAddress, 0}, {true, 0}, {false, 1}} {
		r.config.IngressUseRemoteAddress, r.config.IngressDefaultXFFTrusted = test.remote, test.hops
		c, _ := r.translate(annotated(withTLS))
		all := managers(t, c)
		for _, m := range all {
			if m.GetUseRemoteAddress().GetValue() != test.remote || m.XffNumTrustedHops != test.hops {
				t.Errorf("%+v: %s has %t and %d", test, m.StatPrefix, m.GetUseRemoteAddress().GetValue(), m.XffNumTrustedHops)
			}
		}
		if len(all) != 2 {
			t.Errorf("%d connection managers", len(all))
		}
	}
	if !defaultConfig.IngressUseRemoteAddress {
		t.Error("without the key addresses are those of headers")
	}
}

// Number 32 of the contract's ingress.md; ING-11 to ING-13, ING-F5, ING-F6, ING-F11: hosts, TLS, redirects, timeouts and the default backend are
// the same in all releases.
func TestAllReleases(t *testing.T) {
	const all = `
metadata: {name: web, namespace: shop, annotations: {ingress.cilium.io/request-timeout: 5s}}
spec:
  defaultBackend: {service: {name: fallback, port: {number: 80}}}
  tls: [{hosts: [shop.example.com], secretName: shop-tls}, {hosts: [bare.example.com]}]
  rules:
  - {host: shop.example.com, http: {paths: [{path: /api, pathType: Prefix, backend: {service: {name: api, port: {number: 80}}}}]}}
  - {host: bare.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}}
  - {host: "*.tenant.example.com", http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}}
`
	second := strings.NewReplacer("shop-tls", "other-tls", "name: web", "name: second", "/api", "/other").Replace(annotated(withTLS))
	r := newRig(t)
	for _, of := range release.All() {
		r.cluster.Release = of
		c, reasons := r.translate(all, second)
		check(t, "F5", routes(c, "secure", "shop.example.com"), "/other → shop:api:80", "/api → shop:api:80 5s", "/ → shop:fallback:80 5s")
		check(t, "F5", routes(c, "insecure", "shop.example.com"), "/other → https", "/api → https", "/ → https")
		check(t, "F5", routes(c, "insecure", "*"), "/ → shop:fallback:80 5s")
		check(t, "F6 and D1", routes(c, "insecure", "bare.example.com"), "/ → shop:front:80 5s")
		check(t, "F6 and D1", reasons, "NoSecret")
		check(t, "F11", routes(c, "insecure", "*.tenant.example.com"), "/ → shop:front:80 5s")
		found := chains(t, c)
		if len(found) != 2 || !strings.Contains(found[1], "shop-shop-tls") || !strings.Contains(found[1], "shop-other-tls") {
			t.Errorf("D2 in %s: %q", of, found)
		}
	}
}

// ING-1: which Ingresses are managed.
func TestManaged(t *testing.T) {
	for text, want := range map[string]string{
		`{spec: {ingressClassName: cilium}}`: "true true",
		`{spec: {ingressClassName: nginx}}`:  "false false",
		`{}`:                                 "false true",
		`{spec: {ingressClassName: ""}}`:     "false true",
		`{metadata: {annotations: {kubernetes.io/ingress.class: cilium}}, spec: {ingressClassName: nginx}}`: "true true",
		`{metadata: {annotations: {kubernetes.io/ingress.class: ""}}, spec: {ingressClassName: cilium}}`:    "false true",
		`{metadata: {annotations: {kubernetes.io/ingress.class: nginx}}, spec: {ingressClassName: cilium}}`: "false false",
	} {
		i := decode(t, text)
		if got := fmt.Sprint(isManaged(i, false), " ", isManaged(i, true)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// ING-10: labels and annotations that the Service inherits.
func TestInherited(t *testing.T) {
	i := decode(t, `{metadata: {labels: {service.beta.kubernetes.io/x: v, foo: bar}, annotations: {lbipam.cilium.io/ips: 10.0.0.1, note: z}}}`)
	got, err := json.Marshal([]any{inherited(i.Labels, defaultConfig.IngressLBAnnotationPrefixes), inherited(i.Annotations.Labels, defaultConfig.IngressLBAnnotationPrefixes)})
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != `[{"service.beta.kubernetes.io/x":"v"},{"lbipam.cilium.io/ips":"10.0.0.1"}]` {
		t.Errorf("ING-E6: %s", got)
	}
}
