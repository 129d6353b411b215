// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicel7

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/resources/stream/slim"
)

func newService(annotations map[string]string, ports ...servicePort) *service {
	s := &service{}
	s.Namespace, s.Name = slim.MakeString("shop"), "cart"
	s.Annotations.Labels = slim.MakeLabels(annotations)
	s.Spec.Ports = ports
	return s
}

var (
	http  = servicePort{Port: 80, Protocol: slim.MakeString("TCP")}
	admin = servicePort{Port: 8080, Name: slim.MakeString("admin")}
	dns   = servicePort{Port: 53, Protocol: slim.MakeString("UDP")}
)

// labelled is newService with a label.
func labelled(key, value string, annotations map[string]string) *service {
	s := newService(annotations, http)
	s.Labels.Labels = slim.MakeLabels(map[string]string{key: value})
	return s
}

// L7S-1, L7S-10 and L7S-E13: which Services are selected.
func TestSelection(t *testing.T) {
	for name, test := range map[string]struct {
		of   *service
		c    Config
		want bool
	}{
		"annotated":              {newService(map[string]string{enabledAnnotation: "enabled"}, http), Config{}, true},
		"another value":          {newService(map[string]string{enabledAnnotation: "true"}, http), Config{}, false},
		"a port of the option":   {newService(nil, http, admin), Config{LoadbalancerL7Ports: []string{"443", "8080"}}, true},
		"another port":           {newService(nil, http), Config{LoadbalancerL7Ports: []string{"8080"}}, false},
		"the name of a port":     {newService(nil, admin), Config{LoadbalancerL7Ports: []string{"admin"}}, false},
		"a node port without":    {newService(nil, servicePort{NodePort: 30000}), Config{LoadbalancerL7Ports: []string{"30000"}}, true},
		"of an Ingress":          {labelled(ingressLabel, "true", nil), Config{LoadbalancerL7Ports: []string{"80"}}, false},
		"of a Gateway":           {labelled(gatewayLabel, "web", nil), Config{LoadbalancerL7Ports: []string{"80"}}, false},
		"of no Ingress":          {labelled(ingressLabel, "false", nil), Config{LoadbalancerL7Ports: []string{"80"}}, true},
		"a name without numbers": {newService(nil, servicePort{Name: slim.MakeString("web")}), Config{LoadbalancerL7Ports: []string{"web"}}, true},
	} {
		if got := isSelected(test.of, test.c); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// L7S-2, L7S-3 and L7S-4: how requests are balanced, and which Services are skipped.
func TestPlan(t *testing.T) {
	external, headless := newService(nil, http), newService(nil, http)
	external.Spec.Type = slim.MakeString(string(corev1.ServiceTypeExternalName))
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	enabled := map[string]string{enabledAnnotation: "enabled"}
	with := func(algorithm string) *service {
		return newService(map[string]string{algorithmAnnotation: algorithm}, http)
	}
	for name, test := range map[string]struct {
		of   *service
		flag string
		want string
	}{
		"by default":         {newService(nil, http), "round_robin", "true [] round_robin"},
		"by the option":      {newService(nil, http), "random", "true [] random"},
		"an invalid option":  {newService(nil, http), "fastest", "true [] round_robin"},
		"by the annotation":  {with("Least_Request"), "random", "true [] least_request"},
		"invalid":            {with("bogus"), "random", "true [] round_robin InvalidAlgorithm"},
		"an empty one":       {with(""), "random", "true [] round_robin InvalidAlgorithm"},
		"not for a name":     {with("cluster_provided"), "random", "true [] round_robin InvalidAlgorithm"},
		"of another kind":    {with("load_balancing_policy_config"), "random", "true [] round_robin InvalidAlgorithm"},
		"without hashes":     {with("maglev"), "random", "true [] maglev AlgorithmWithoutHash"},
		"several ports":      {newService(nil, admin, http), "random", "true [80 8080] random"},
		"TCP and UDP":        {newService(nil, dns, http), "random", "true [80] random"},
		"UDP":                {newService(nil, dns), "random", "false []  NoTCPPort"},
		"no address":         {headless, "random", "false []  NoClusterIP"},
		"a name of the DNS":  {external, "random", "false []  NoClusterIP"},
		"of an Ingress":      {labelled(ingressLabel, "true", enabled), "random", "false []  ServedAlready"},
		"of a Gateway":       {labelled(gatewayLabel, "web", enabled), "random", "false []  ServedAlready"},
		"a name without TCP": {newService(nil), "random", "false []  NoTCPPort"},
	} {
		p := planFor(test.of, Config{LoadbalancerL7Algorithm: test.flag})
		got := fmt.Sprint(p.serves, p.service.Ports, " ", p.service.Algorithm)
		for _, n := range p.notices {
			got += " " + n.Reason
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if p.serves {
			spec, err := p.service.Translate(envoy.Connections{Idle: time.Minute, Connect: 5 * time.Second})
			if err != nil {
				t.Error(err)
			}
			c, err := envoytest.Verify(spec)
			if err != nil || len(c.Clusters) != max(1, len(p.service.Ports)) || len(c.Listeners) != 1 || len(spec.Services) != 1 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
