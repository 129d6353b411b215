// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	envoyres "github.com/skep-operator/skep/resources/envoy"
)

const (
	prefix = "ingress.cilium.io/"
	alias  = "io.cilium.ingress/"

	dedicatedMode = "dedicated"
	sharedMode    = "shared"
)

// settingNames are the names of the annotations that settingsOf reads, without their prefix.
var settingNames = []string{
	"loadbalancer-mode", "loadbalancer-class", "request-timeout", "tls-passthrough", "force-https", "service-type", "service-external-traffic-policy",
	"insecure-node-port", "secure-node-port", "host-listener-port",
}

// settings are what the annotations of an Ingress say.
type settings struct {
	shared            bool
	loadBalancerClass string
	nodePort          bool                                // the type of the Service
	trafficPolicy     corev1.ServiceExternalTrafficPolicy // "" where no annotation has one
	insecureNodePort  int32
	secureNodePort    int32
	hostPort          uint32
	passthrough       bool
	forceHTTPS        bool
	timeout           *time.Duration
	mostProgram       int64 // instructions of the program of a regular expression, 0 for the bound of RE2
	notices           []envoyres.Notice
}

// annotation is a value of an Ingress. Older names of some are aliases.
func annotation(i *ingress, name string, aliased bool) (value string, exists bool) {
	if value, exists = i.Annotations.Lookup(prefix + name); exists || !aliased {
		return value, exists
	}
	return i.Annotations.Lookup(alias + name)
}

func (s *settings) invalid(name, value, remedy string) {
	s.notices = append(s.notices, envoyres.Notice{
		Reason: "InvalidAnnotation", Message: fmt.Sprintf("the annotation %s%s is %.100q: %s", prefix, name, value, remedy),
	})
}

// settingsOf reads the annotations of an Ingress. What is not valid is as if it was not set, and has a notice.
func settingsOf(i *ingress, c Config) settings {
	s := settings{shared: c.IngressDefaultLBMode != dedicatedMode, forceHTTPS: c.EnforceIngressHTTPS}
	switch mode, exists := annotation(i, "loadbalancer-mode", true); {
	case mode == dedicatedMode, mode == sharedMode:
		s.shared = mode == sharedMode
	case exists:
		s.invalid("loadbalancer-mode", mode, "it should be dedicated or shared")
	}
	s.loadBalancerClass, _ = annotation(i, "loadbalancer-class", false)
	if c.IngressDefaultTimeout > 0 {
		s.timeout = &c.IngressDefaultTimeout
	}
	if text, exists := annotation(i, "request-timeout", false); exists {
		if d, err := time.ParseDuration(text); err == nil && d >= 0 {
			s.timeout = &d
		} else {
			s.invalid("request-timeout", text, "it should be a duration such as 30s")
		}
	}
	if text, exists := annotation(i, "tls-passthrough", true); exists {
		var valid bool
		if s.passthrough, valid = parseBool(text); !valid {
			s.invalid("tls-passthrough", text, "it should be enabled or disabled")
		}
	}
	if text, exists := annotation(i, "force-https", false); exists {
		if force, valid := parseBool(text); valid {
			s.forceHTTPS = force
		} else {
			s.invalid("force-https", text, "it should be enabled or disabled")
		}
	}
	if !s.shared {
		s.readService(i, c)
	}
	return s
}

// readService reads what is about the Service of a load balancer of its own.
func (s *settings) readService(i *ingress, c Config) {
	switch text, exists := annotation(i, "service-type", true); {
	case text == string(corev1.ServiceTypeNodePort):
		s.nodePort = true
	case exists && text != string(corev1.ServiceTypeLoadBalancer):
		s.invalid("service-type", text, "it should be LoadBalancer or NodePort")
	}
	text, exists := annotation(i, "service-external-traffic-policy", false)
	switch policy := corev1.ServiceExternalTrafficPolicy(text); {
	case policy == corev1.ServiceExternalTrafficPolicyLocal, policy == corev1.ServiceExternalTrafficPolicyCluster:
		s.trafficPolicy = policy
	case exists:
		s.invalid("service-external-traffic-policy", text, "it should be Cluster or Local")
	}
	if s.nodePort {
		s.insecureNodePort = int32(s.port(i, "insecure-node-port", true))
		s.secureNodePort = int32(s.port(i, "secure-node-port", true))
	}
	if c.IngressHostNetworkEnabled {
		if s.hostPort = s.port(i, "host-listener-port", false); s.hostPort == 0 {
			s.hostPort = defaultPort
			if _, exists := annotation(i, "host-listener-port", false); !exists {
				s.invalid("host-listener-port", "", "it should be a port of the nodes; 8080 is used")
			}
		}
	}
}

// port is a port, 0 if it is not set or not valid.
func (s *settings) port(i *ingress, name string, aliased bool) uint32 {
	text, exists := annotation(i, name, aliased)
	if !exists {
		return 0
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		s.invalid(name, text, "it should be a port")
		return 0
	}
	return uint32(port)
}

func parseBool(text string) (value, valid bool) {
	switch text {
	case "enabled":
		return true, true
	case "disabled":
		return false, true
	}
	value, err := strconv.ParseBool(text)
	return value, err == nil
}
