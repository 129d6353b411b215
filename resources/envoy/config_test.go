// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/envoy"
)

// ENV-35; numbers 34, 35 and 47 of the contract's envoy-config.md, and 10 to 12 of its l7-service-lb.md: timeouts and internal addresses
// of each release.
func TestConnections(t *testing.T) {
	const five = 5 * time.Minute
	for name, test := range map[string]struct {
		release      string
		idle, stream int
		want         envoy.Connections
		service      bool
	}{
		"1.17":             {"1.17", 60, 300, envoy.Connections{Idle: time.Minute, Connect: 5 * time.Second}, false},
		"1.17, 10 minutes": {"1.17", 60, 600, envoy.Connections{Idle: time.Minute, Connect: 5 * time.Second, StreamIdle: new(10 * time.Minute)}, false},
		"1.18":             {"1.18", 60, 300, envoy.Connections{Idle: time.Minute, StreamIdle: new(five), InternalIPv4: true}, false},
		"1.19, zeros":      {"1.19", 0, 0, envoy.Connections{Idle: time.Minute, StreamIdle: new(five), InternalIPv4: true}, false},
		"1.20, zeros":      {"1.20", 0, 0, envoy.Connections{InternalIPv4: true}, false},
		"1.20":             {"1.20", 60, 300, envoy.Connections{Idle: time.Minute, StreamIdle: new(five), InternalIPv4: true}, false},
		"1.19, a Service":  {"1.19", 60, 0, envoy.Connections{Idle: time.Minute, StreamIdle: new(five), InternalIPv4: true, Connect: 5 * time.Second}, true},
		"1.20, a Service":  {"1.20", 60, 0, envoy.Connections{Idle: time.Minute, StreamIdle: new(time.Duration(0)), InternalIPv4: true, Connect: 5 * time.Second}, true},
	} {
		r, _, err := release.Parse(test.release)
		if err != nil {
			t.Fatal(err)
		}
		c, of := Config{ProxyIdleTimeoutSeconds: test.idle, ProxyStreamIdleTimeoutSeconds: test.stream}, cluster.Config{EnableIPv4: true, Release: r}
		got := c.Connections(of)
		if test.service {
			got = c.ServiceConnections(of)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// ENV-37; numbers 33 of the contract's gateway-api.md and 25 of its ingress.md: new Services prefer both families where both are on.
func TestFamilies(t *testing.T) {
	both := cluster.Config{EnableIPv4: true, EnableIPv6: true}
	older, _, err := release.Parse("1.17")
	if err != nil {
		t.Fatal(err)
	}
	of := func(c cluster.Config, isNew bool) bool {
		s := &corev1.Service{}
		SetFamilies(s, isNew, c)
		return s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack && s.Spec.IPFamilies == nil
	}
	if !of(both, true) || of(both, false) || of(cluster.Config{EnableIPv6: true}, true) || of(cluster.Config{EnableIPv4: true, EnableIPv6: true, Release: older}, true) {
		t.Error("families differ")
	}
}

// Both duties that agents cannot serve are named at once, and none where agents can.
func TestCheckRedirects(t *testing.T) {
	c := Config{EnableIngressController: true, EnableGatewayAPI: true, KubeProxyReplacement: "false"}
	err := checkRedirects(c, cluster.Config{})
	if err == nil || !strings.Contains(err.Error(), "enable-ingress-controller") || !strings.Contains(err.Error(), "enable-gateway-api") {
		t.Errorf("%v", err)
	}
	if err := checkRedirects(c, cluster.Config{EnableNodePort: true}); err != nil {
		t.Error(err)
	}
}

// NIPAM-15: where a listener can be on the network of the nodes.
func TestListensAtNodes(t *testing.T) {
	for _, test := range []struct {
		config   Config
		nodePort bool
		want     bool
	}{
		{Config{EnableIngressController: true, EnableGatewayAPI: true, KubeProxyReplacement: "true"}, false, false},
		{Config{IngressHostNetworkEnabled: true, GatewayAPIHostNetworkEnabled: true, KubeProxyReplacement: "true"}, false, false},
		{Config{IngressHostNetworkEnabled: true, EnableGatewayAPI: true, KubeProxyReplacement: "true"}, false, false},
		{Config{IngressHostNetworkEnabled: true, EnableIngressController: true}, false, false},
		{Config{IngressHostNetworkEnabled: true, EnableIngressController: true}, true, true},
		{Config{IngressHostNetworkEnabled: true, EnableIngressController: true, KubeProxyReplacement: "true"}, false, true},
		{Config{GatewayAPIHostNetworkEnabled: true, EnableGatewayAPI: true, KubeProxyReplacement: "true"}, false, true},
	} {
		if got := ListensAtNodes(test.config, cluster.Config{EnableNodePort: test.nodePort}); got != test.want {
			t.Errorf("%+v: %t", test.config, got)
		}
	}
}
