// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/domain/envoy/refusetest"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// hostile makes Ingresses with texts that Envoy refuses here and there.
type hostile struct{ refusetest.Source }

// host is mostly a good one.
func (h hostile) host() string {
	switch h.IntN(8) {
	case 0:
		return h.Host()
	case 1, 2:
		return "*.good.example.com"
	case 3:
		return ""
	}
	return fmt.Sprintf("h%d.example.com", h.IntN(3))
}

// ingress is one whose backends have its name and a number.
func (h hostile) ingress(t *testing.T, namespace, name string) (i *ingress, backends []string) {
	i = decode(t, fmt.Sprintf("{metadata: {name: %s, namespace: %s}}", name, namespace))
	backend := func() networkingv1.IngressBackend {
		backends = append(backends, fmt.Sprintf("%s-%d", name, len(backends)))
		return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
			Name: backends[len(backends)-1], Port: networkingv1.ServiceBackendPort{Number: 80},
		}}
	}
	for range 1 + h.IntN(3) {
		rule := networkingv1.IngressRule{Host: h.host()}
		rule.HTTP = &networkingv1.HTTPIngressRuleValue{}
		for range 1 + h.IntN(2) {
			kind, path := networkingv1.PathTypePrefix, "/good"
			switch h.IntN(5) {
			case 0:
				path = h.Path()
			case 1:
				kind, path = networkingv1.PathTypeExact, h.Path()
			case 2:
				kind, path = networkingv1.PathTypeImplementationSpecific, h.Expression()
			}
			rule.HTTP.Paths = append(rule.HTTP.Paths, networkingv1.HTTPIngressPath{Path: path, PathType: &kind, Backend: backend()})
		}
		i.Spec.Rules = append(i.Spec.Rules, rule)
		if h.IntN(2) == 0 {
			i.Spec.TLS = append(i.Spec.TLS, networkingv1.IngressTLS{Hosts: []string{rule.Host, h.host()}, SecretName: "cert"})
		}
	}
	if h.IntN(4) == 0 {
		i.Spec.DefaultBackend = new(backend())
	}
	return i, backends
}

// ENV-42, ENV-31: whatever Ingresses ask for, nothing is written that Envoy refuses; what it would refuse is left out alone, with a notice on its
// Ingress.
func TestNothingRefusedIsWritten(t *testing.T) {
	n := 250
	switch {
	case seedtest.Soak():
		n = 10_000
	case testing.Short() || seedtest.RaceEnabled:
		n = 60
	}
	c := &controller{params: params{Config: defaultConfig, Cluster: cluster.DefaultConfig, Envoy: envoyres.Config{IngressSecretsNamespace: "cilium-secrets"}}}
	h := hostile{refusetest.Source{Rand: rand.New(rand.NewPCG(seedtest.Seed(t), 0))}}
	written, left := 0, 0
	for range n {
		var m envoy.Model
		notices, backends := map[envoy.Name][]string{}, map[envoy.Name][]string{}
		for j := range 3 {
			i, names := h.ingress(t, fmt.Sprint("ns", j%2), fmt.Sprint("web", j))
			s := settings{shared: true, forceHTTPS: h.IntN(2) == 0, passthrough: h.IntN(6) == 0, mostProgram: 100}
			in := ingest(i, s, c.Config.sharedPorts(), envoy.Name{}, func(backendPort) found { return withPort })
			m.HTTP, m.Passthrough = slices.Concat(m.HTTP, in.model.HTTP), slices.Concat(m.Passthrough, in.model.Passthrough)
			of := nameOf(i.Key())
			backends[of] = names
			for _, one := range in.notices {
				notices[of] = append(notices[of], one.Message)
			}
		}
		o := c.options(serviceKey(decode(t, "{metadata: {name: x, namespace: shop}}").Key()))
		o.Owners = h.IntN(2) == 0
		tr, err := new(envoy.Translator).Translate(m, o)
		if err != nil {
			t.Fatal(err)
		}
		for of, all := range noticesOf(tr.Problems) {
			for _, one := range all {
				notices[of] = append(notices[of], one.Message)
			}
		}
		clusters := ""
		if !tr.Empty {
			config, err := refusetest.Check(tr.Spec)
			if err := errors.Join(err, refusetest.CheckPrograms(config, 100)); err != nil {
				t.Fatal(err)
			}
			for name := range config.Clusters {
				clusters += name + " "
			}
		}
		for of, names := range backends {
			for _, name := range names {
				switch isWritten := strings.Contains(clusters, ":"+name+":"); {
				case isWritten:
					written++
				case len(notices[of]) == 0:
					t.Fatalf("the backend %s is written nowhere, and %s has no notice", name, of)
				default:
					left++
				}
			}
		}
	}
	if written < n || left < n {
		t.Errorf("%d backends are written, and %d left out", written, left)
	}
}
