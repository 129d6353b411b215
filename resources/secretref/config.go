// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config says whose secrets are copied, and where to those of network policies. The other namespaces are options of resources/envoy.
type Config struct {
	EnableIngressSecretsSync    bool   `flag:"enable-ingress-secrets-sync" usage:"Copy the TLS secrets of Ingresses to --ingress-secrets-namespace"`
	EnableGatewayAPISecretsSync bool   `flag:"enable-gateway-api-secrets-sync" usage:"Copy the TLS secrets of Gateways to --gateway-api-secrets-namespace"`
	EnablePolicySecretsSync     bool   `flag:"enable-policy-secrets-sync" usage:"Copy the secrets of network policies to --policy-secrets-namespace"`
	PolicySecretsNamespace      string `flag:"policy-secrets-namespace" usage:"Namespace of the copies of secrets of network policies"`
	// PolicySecretsOwnNamespaceOnly has CiliumNetworkPolicies refer to Secrets of their own namespace alone.
	PolicySecretsOwnNamespaceOnly bool `flag:"policy-secrets-own-namespace-only" usage:"Refuse Secrets of other namespaces to CiliumNetworkPolicies"`
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.PolicySecretsNamespace != "" && len(validation.IsDNS1123Label(c.PolicySecretsNamespace)) > 0 {
		return cell.Invalid("policy-secrets-namespace", "must be the name of a namespace: lower-case letters, digits and dashes, at most 63")
	}
	return nil
}

// The options that decide whose secrets are copied.
var (
	IngressFlags = []string{"enable-ingress-controller", "enable-ingress-secrets-sync", "ingress-secrets-namespace", "kube-proxy-replacement", "enable-node-port"}
	GatewayFlags = []string{"enable-gateway-api", "enable-gateway-api-secrets-sync", "gateway-api-secrets-namespace", "kube-proxy-replacement", "enable-node-port"}
	PolicyFlags  = []string{"enable-policy-secrets-sync", "policy-secrets-namespace"}
)

// OfIngresses reports whether the secrets of Ingresses are copied.
func OfIngresses(c Config, e envoy.Config, shared cluster.Config) bool {
	return c.EnableIngressSecretsSync && e.IngressSecretsNamespace != "" && envoy.ServesIngresses(e, shared)
}

// OfGateways reports whether the secrets of Gateways are copied.
func OfGateways(c Config, e envoy.Config, shared cluster.Config) bool {
	return c.EnableGatewayAPISecretsSync && e.GatewayAPISecretsNamespace != "" && envoy.ServesGateways(e, shared)
}

// KeptOfGateways reports whether the copies that Gateways had are among those of others, while none are made for Gateways: agents serve what they
// were given until it is deleted.
func KeptOfGateways(c Config, e envoy.Config, shared cluster.Config) bool {
	return !OfGateways(c, e, shared) && CopiesTo(e.GatewayAPISecretsNamespace, c, e, shared)
}

// KeptOfIngresses is KeptOfGateways of Ingresses.
func KeptOfIngresses(c Config, e envoy.Config, shared cluster.Config) bool {
	return !OfIngresses(c, e, shared) && CopiesTo(e.IngressSecretsNamespace, c, e, shared)
}

// NamedByConfigurations reports whether copies are made where configurations of Gateways or Ingresses name them, and some of these are served.
func NamedByConfigurations(c Config, e envoy.Config, shared cluster.Config) bool {
	return serves(e, shared) && mayBeNamed(c, e, shared)
}

// LeftByConfigurations reports whether copies are made where configurations may name them that were left: none are served.
func LeftByConfigurations(c Config, e envoy.Config, shared cluster.Config) bool {
	return !serves(e, shared) && mayBeNamed(c, e, shared)
}

// NamedWithoutGateways reports whether copies are made where configurations may name them, and none are for Gateways.
func NamedWithoutGateways(c Config, e envoy.Config, shared cluster.Config) bool {
	return !OfGateways(c, e, shared) && mayBeNamed(c, e, shared)
}

func serves(e envoy.Config, shared cluster.Config) bool {
	return envoy.ServesIngresses(e, shared) || envoy.ServesGateways(e, shared)
}

func mayBeNamed(c Config, e envoy.Config, shared cluster.Config) bool {
	return CopiesTo(e.GatewayAPISecretsNamespace, c, e, shared) || CopiesTo(e.IngressSecretsNamespace, c, e, shared)
}

// CopiesTo reports whether any secrets are copied to a namespace.
func CopiesTo(namespace string, c Config, e envoy.Config, shared cluster.Config) bool {
	return namespace != "" && (OfIngresses(c, e, shared) && namespace == e.IngressSecretsNamespace ||
		OfGateways(c, e, shared) && namespace == e.GatewayAPISecretsNamespace || OfPolicies(c) && namespace == c.PolicySecretsNamespace)
}

// OfPolicies reports whether the secrets of network policies are copied.
func OfPolicies(c Config) bool { return c.EnablePolicySecretsSync && c.PolicySecretsNamespace != "" }

// OfAny reports whether any secrets are copied.
func OfAny(c Config, e envoy.Config, shared cluster.Config) bool {
	return OfIngresses(c, e, shared) || OfGateways(c, e, shared) || OfPolicies(c)
}
