// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/runtime/cell"
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

	// Options of agents that are part of the configuration of Envoy.
	ProxyIdleTimeoutSeconds       int `flag:"proxy-idle-timeout-seconds" usage:"Idle timeout of connections from Envoy to backends, in seconds" hidden:"true" min:"0" max:"31536000"`
	ProxyStreamIdleTimeoutSeconds int `flag:"proxy-stream-idle-timeout-seconds" usage:"Idle timeout of requests in Envoy, in seconds" hidden:"true" min:"0" max:"31536000"`
}

// checkRedirects reports duties that agents cannot serve.
func checkRedirects(c Config, shared cluster.Config) error {
	if c.EnableIngressController && !c.redirects(shared) {
		return cell.Questionable("enable-ingress-controller", "has no effect without --kube-proxy-replacement=true: agents do not redirect Services to Envoy")
	}
	if c.EnableGatewayAPI && !c.redirects(shared) {
		return cell.Questionable("enable-gateway-api", "has no effect without --kube-proxy-replacement=true: agents do not redirect Services to Envoy")
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

// Timeouts are the timeouts of a translation.
func (c Config) Timeouts() envoy.Timeouts {
	return envoy.Timeouts{
		Idle:       time.Duration(c.ProxyIdleTimeoutSeconds) * time.Second,
		StreamIdle: time.Duration(c.ProxyStreamIdleTimeoutSeconds) * time.Second,
	}
}
