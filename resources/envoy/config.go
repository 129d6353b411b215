// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"errors"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
)

// Config are options that several duties read which configure Envoy.
type Config struct {
	EnableIngressController bool   `flag:"enable-ingress-controller" usage:"Serve Ingresses of the class cilium"`
	KubeProxyReplacement    string `flag:"kube-proxy-replacement" usage:"Agents replace kube-proxy: true or false; Ingresses need it"`

	// IngressSecretsNamespace has the copies of secrets that agents may read.
	IngressSecretsNamespace       string `flag:"ingress-secrets-namespace" usage:"Namespace of the copies of TLS secrets of Ingresses"`
	IngressDefaultSecretNamespace string `flag:"ingress-default-secret-namespace" usage:"Namespace of the TLS secret of Ingresses without one"`
	IngressDefaultSecretName      string `flag:"ingress-default-secret-name" usage:"Name of the TLS secret of Ingresses without one"`

	EnableGatewayAPI           bool   `flag:"enable-gateway-api" usage:"Serve the Gateway API" hidden:"true"`
	GatewayAPISecretsNamespace string `flag:"gateway-api-secrets-namespace" usage:"Namespace of the copies of TLS secrets of Gateways"`

	// IngressHostNetworkEnabled and GatewayAPIHostNetworkEnabled are as given; ListensAtNodes is what holds.
	IngressHostNetworkEnabled    bool `flag:"ingress-hostnetwork-enabled" usage:"Ingresses: listen on ports of the nodes in place of load balancers"`
	GatewayAPIHostNetworkEnabled bool `flag:"gateway-api-hostnetwork-enabled" usage:"Gateways: listen on ports of the nodes in place of load balancers"`

	// MaxRegexProgramSize is a limit of the agents' Envoy (ENV-23).
	MaxRegexProgramSize int `flag:"envoy-max-regex-program-size" usage:"How many instructions the program of a regular expression of an Ingress or a route may have: re2.max_program_size.error_level of the runtime of the agents' Envoy; 0 for the bound of RE2" min:"0" max:"1000000"`

	// Options of agents that are part of the configuration of Envoy.
	ProxyIdleTimeoutSeconds       int `flag:"proxy-idle-timeout-seconds" usage:"Idle timeout of connections from Envoy to backends, in seconds" hidden:"true" min:"0" max:"31536000"`
	ProxyStreamIdleTimeoutSeconds int `flag:"proxy-stream-idle-timeout-seconds" usage:"Idle timeout of requests in Envoy, in seconds" hidden:"true" min:"0" max:"31536000"`
}

// ConfigOf is the Config among values, for what other config structs derive from it.
func ConfigOf(values *config.Values) (c Config) {
	if v, is := values.Struct(reflect.TypeFor[Config]()); is {
		c = v.Interface().(Config)
	}
	return c
}

// AtNodesFlags are those by which ListensAtNodes changes.
var AtNodesFlags = []string{"ingress-hostnetwork-enabled", "gateway-api-hostnetwork-enabled", "enable-ingress-controller", "enable-gateway-api", "kube-proxy-replacement", "enable-node-port"}

// ListensAtNodes reports whether Ingresses or Gateways are served, and listen on ports of the nodes.
func ListensAtNodes(c Config, shared cluster.Config) bool {
	return c.IngressHostNetworkEnabled && ServesIngresses(c, shared) || c.GatewayAPIHostNetworkEnabled && ServesGateways(c, shared)
}

// checkRedirects reports duties that agents cannot serve.
func checkRedirects(c Config, shared cluster.Config) error {
	if c.redirects(shared) {
		return nil
	}
	const without = "has no effect without --kube-proxy-replacement=true: agents do not redirect Services to Envoy"
	var errs []error
	if c.EnableIngressController {
		errs = append(errs, cell.Questionable("enable-ingress-controller", without))
	}
	if c.EnableGatewayAPI {
		errs = append(errs, cell.Questionable("enable-gateway-api", without))
	}
	return errors.Join(errs...)
}

// leastProgram is what Envoy has to take of regular expressions for what is written whatever users ask for.
const leastProgram = 30

// checkPrograms reports a limit with which Envoy would refuse all configurations.
func checkPrograms(c Config) error {
	if most := c.MaxRegexProgramSize; most > 0 && most < leastProgram {
		return cell.Questionable("envoy-max-regex-program-size", "is lower than %d: an Envoy that takes no more refuses what is written for each Ingress and Gateway", leastProgram)
	}
	return nil
}

// redirects reports whether agents redirect Services to Envoy.
func (c Config) redirects(shared cluster.Config) bool {
	return c.KubeProxyReplacement == "true" || shared.EnableNodePort
}

// ServesIngresses reports whether Ingresses are served.
func ServesIngresses(c Config, shared cluster.Config) bool {
	return c.EnableIngressController && c.redirects(shared)
}

// ServesGateways reports whether the Gateway API is served.
func ServesGateways(c Config, shared cluster.Config) bool {
	return c.EnableGatewayAPI && c.redirects(shared)
}

// DefaultSecret is the TLS secret of Ingresses without one; ok is false if there is none.
func (c Config) DefaultSecret() (name envoy.Name, ok bool) {
	name = envoy.Name{Namespace: c.IngressDefaultSecretNamespace, Name: c.IngressDefaultSecretName}
	return name, name.Namespace != "" && name.Name != ""
}

// Connections is how connections are served, as the original of the release has it (ENV-35).
func (c Config) Connections(shared cluster.Config) envoy.Connections {
	to := envoy.Connections{Idle: time.Duration(c.ProxyIdleTimeoutSeconds) * time.Second}
	idle := time.Duration(c.ProxyStreamIdleTimeoutSeconds) * time.Second
	if !release.InternalAddresses.In(shared.Release) {
		to.Connect = connectTimeout
		if idle != streamIdle {
			to.StreamIdle = &idle
		}
		return to
	}
	to.InternalIPv4, to.InternalIPv6 = shared.EnableIPv4, shared.EnableIPv6
	if !release.ZeroTimeouts.In(shared.Release) {
		if idle == 0 {
			idle = streamIdle
		}
		if to.Idle == 0 {
			to.Idle = upstreamIdle
		}
	}
	if idle > 0 {
		to.StreamIdle = &idle
	}
	return to
}

// ServiceConnections is Connections for Services at layer 7.
func (c Config) ServiceConnections(shared cluster.Config) envoy.Connections {
	to := c.Connections(shared)
	to.Connect = connectTimeout
	if to.StreamIdle == nil && c.ProxyStreamIdleTimeoutSeconds == 0 {
		to.StreamIdle = new(time.Duration)
	}
	return to
}

// What the original writes where an option does not say.
const (
	connectTimeout = 5 * time.Second
	streamIdle     = 5 * time.Minute
	upstreamIdle   = time.Minute
)

// SetFamilies has a new Service prefer both families, if the cluster has both and the original of its release asks for them. Families
// that the API server lacks are no error then.
func SetFamilies(s *corev1.Service, isNew bool, of cluster.Config) {
	if isNew && of.EnableIPv4 && of.EnableIPv6 && release.DualStackServices.In(of.Release) {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
	}
}
