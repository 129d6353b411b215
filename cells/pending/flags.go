// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pending

import "github.com/spf13/pflag"

// flag is an option of a duty that is not built.
type flag struct {
	duty    string
	name    string
	kind    string // as help prints it
	value   string // default
	removed bool   // from the original, too: nothing will come of it
}

// flags are the options of the original that no cell has yet, by duty. A duty
// that is built takes its flags along.
var flags = []flag{
	{"clustermesh", "clustermesh-cache-ttl", "duration", "0s", false},
	{"clustermesh", "clustermesh-concurrent-service-endpoint-syncs", "int", "5", false},
	{"clustermesh", "clustermesh-config", "string", "", false},
	{"clustermesh", "clustermesh-default-global-namespace", "bool", "true", false},
	{"clustermesh", "clustermesh-enable-endpoint-sync", "bool", "false", false},
	{"clustermesh", "clustermesh-endpoint-updates-batch-period", "duration", "500ms", false},
	{"clustermesh", "clustermesh-endpoints-per-slice", "int", "100", false},
	{"clustermesh", "clustermesh-mcs-api-install-crds", "bool", "true", false},
	{"clustermesh", "clustermesh-sync-timeout", "duration", "1m0s", false},
	{"controller metrics", "controller-group-metrics", "strings", "", false},
	{"controller metrics", "metrics-sampling-interval", "duration", "5m0s", false},
	{"doublewrite", "double-write-metric-reporter-interval", "duration", "1m0s", false},
	{"gatewayapi", "enable-gateway-api-alpn", "bool", "false", false},
	{"gatewayapi", "enable-gateway-api-app-protocol", "bool", "false", false},
	{"gatewayapi", "enable-gateway-api-proxy-protocol", "bool", "false", false},
	{"gatewayapi", "enable-gateway-api-secrets-sync", "bool", "true", false},
	{"gatewayapi", "gateway-api-hostnetwork-enabled", "bool", "false", false},
	{"gatewayapi", "gateway-api-hostnetwork-nodelabelselector", "string", "", false},
	{"gatewayapi", "gateway-api-secrets-namespace", "string", "cilium-secrets", false},
	{"gatewayapi", "gateway-api-service-externaltrafficpolicy", "string", "Cluster", false},
	{"gatewayapi", "gateway-api-xff-num-trusted-hops", "uint32", "0", false},
	{"ingress", "enable-ingress-controller", "bool", "false", false},
	{"ingress", "enable-ingress-proxy-protocol", "bool", "false", false},
	{"ingress", "enable-ingress-secrets-sync", "bool", "true", false},
	{"ingress", "enforce-ingress-https", "bool", "true", false},
	{"ingress", "ingress-default-lb-mode", "string", "dedicated", false},
	{"ingress", "ingress-default-request-timeout", "duration", "0s", false},
	{"ingress", "ingress-default-secret-name", "string", "", false},
	{"ingress", "ingress-default-secret-namespace", "string", "", false},
	{"ingress", "ingress-default-xff-num-trusted-hops", "uint32", "0", false},
	{"ingress", "ingress-hostnetwork-enabled", "bool", "false", false},
	{"ingress", "ingress-hostnetwork-http-listener-port", "uint32", "0", false},
	{"ingress", "ingress-hostnetwork-https-listener-port", "uint32", "0", false},
	{"ingress", "ingress-hostnetwork-nodelabelselector", "string", "", false},
	{"ingress", "ingress-hostnetwork-shared-listener-port", "uint32", "0", false},
	{"ingress", "ingress-hostnetwork-tls-passthrough-listener-port", "uint32", "0", false},
	{"ingress", "ingress-lb-annotation-prefixes", "strings", "", false},
	{"ingress", "ingress-secrets-namespace", "string", "cilium-secrets", false},
	{"ingress", "ingress-shared-lb-service-name", "string", "cilium-ingress", false},
	{"ingress, gatewayapi", "enable-node-port", "bool", "false", true},
	{"ingress, gatewayapi", "kube-proxy-replacement", "string", "", false},
	{"ipam.alibabacloud", "alibaba-cloud-release-excess-ips", "bool", "false", false},
	{"ipam.alibabacloud", "alibaba-cloud-vpc-id", "string", "", false},
	{"ipam.aws", "aws-enable-prefix-delegation", "bool", "false", false},
	{"ipam.aws", "aws-instance-limit-mapping", "map", "", true},
	{"ipam.aws", "aws-max-results-per-call", "int", "0", false},
	{"ipam.aws", "aws-release-excess-ips", "bool", "false", false},
	{"ipam.aws", "aws-use-primary-address", "bool", "false", false},
	{"ipam.aws", "ec2-api-endpoint", "string", "", false},
	{"ipam.aws", "eni-gc-interval", "duration", "5m0s", false},
	{"ipam.aws", "eni-gc-tags", "map", "", false},
	{"ipam.aws", "eni-tags", "map", "", false},
	{"ipam.aws", "excess-ip-release-delay", "int", "180", false},
	{"ipam.aws", "update-ec2-adapter-limit-via-api", "bool", "true", true},
	{"ipam.azure", "azure-resource-group", "string", "", false},
	{"ipam.azure", "azure-subscription-id", "string", "", false},
	{"ipam.azure", "azure-use-primary-address", "bool", "false", false},
	{"ipam.azure", "azure-user-assigned-identity-id", "string", "", false},
	{"ipam.cloud", "instance-tags-filter", "map", "", false},
	{"ipam.cloud", "limit-ipam-api-burst", "int", "20", false},
	{"ipam.cloud", "limit-ipam-api-qps", "float", "4", false},
	{"ipam.cloud", "parallel-alloc-workers", "int", "50", false},
	{"ipam.cloud", "subnet-ids-filter", "strings", "", false},
	{"ipam.cloud", "subnet-tags-filter", "map", "", false},
	{"ipam.multipool", "auto-create-cilium-pod-ip-pools", "map", "", false},
	{"ipsec", "enable-ipsec", "bool", "false", false},
	{"l7lb", "enable-l7-proxy", "bool", "true", false},
	{"l7lb", "loadbalancer-l7", "string", "", false},
	{"l7lb", "loadbalancer-l7-algorithm", "string", "round_robin", false},
	{"l7lb", "loadbalancer-l7-ports", "strings", "", false},
	{"lbipam", "default-lb-service-ipam", "string", "lbipam", false},
	{"lbipam", "enable-lb-ipam", "bool", "true", false},
	{"lbipam", "enable-node-ipam", "bool", "false", false},
	{"lbipam", "lbipam-require-lb-class", "bool", "false", true},
	{"legacy BGP (removed)", "bgp-announce-lb-ip", "bool", "false", true},
	{"legacy BGP (removed)", "bgp-config-path", "string", "/var/lib/cilium/bgp/config.yaml", true},
	{"mutualauth", "enable-ztunnel", "bool", "false", false},
	{"mutualauth", "mesh-auth-enabled", "bool", "true", false},
	{"mutualauth", "mesh-auth-mutual-enabled", "bool", "false", false},
	{"mutualauth", "mesh-auth-spiffe-trust-domain", "string", "spiffe.cilium", false},
	{"mutualauth", "mesh-auth-spire-agent-socket", "string", "/run/spire/sockets/agent/agent.sock", false},
	{"mutualauth", "mesh-auth-spire-server-address", "string", "spire-server.spire.svc:8081", false},
	{"mutualauth", "mesh-auth-spire-server-connection-timeout", "duration", "10s", false},
	{"nodesync, nodetaints", "cilium-pod-labels", "string", "k8s-app=cilium", false},
	{"nodesync, nodetaints", "cilium-pod-namespace", "string", "", false},
	{"nodesync, nodetaints", "remove-cilium-node-taints", "bool", "true", false},
	{"nodesync, nodetaints", "set-cilium-is-up-condition", "bool", "true", false},
	{"nodesync, nodetaints", "set-cilium-node-taints", "bool", "false", false},
	{"nodetaints", "taint-sync-workers", "int", "10", false},
	{"policies", "enable-node-selector-labels", "bool", "false", false},
	{"policies", "enable-policy", "string", "default", false},
	{"policies", "policy-default-local-cluster", "bool", "false", false},
	{"policies", "validate-network-policy", "bool", "true", false},
	{"secretsync", "enable-policy-secrets-sync", "bool", "true", false},
	{"secretsync", "policy-secrets-namespace", "string", "cilium-secrets", false},
	{"servicesync", "enable-k8s-endpoint-slice", "bool", "true", true},
	{"servicesync", "k8s-service-proxy-name", "string", "", false},
	{"shell", "shell-sock-path", "string", "/var/run/cilium/shell.sock", false},
	{"srv6", "enable-srv6", "bool", "false", false},
	{"unmanagedpods", "pod-restart-selector", "string", "k8s-app=kube-dns", false},
	{"unmanagedpods", "unmanaged-pod-watcher-interval", "int", "15", false},
	{"wireguard", "enable-wireguard", "bool", "false", false},
}

func declare(fs *pflag.FlagSet) {
	for _, f := range flags {
		usage := "Not built yet: " + f.duty
		if f.removed {
			usage = "Removed from the original"
		}
		fs.Var(text(f), f.name, usage)
		_ = fs.MarkHidden(f.name)
		if f.kind == "bool" {
			fs.Lookup(f.name).NoOptDefVal = "true"
		}
	}
}

// text is a flag's value that nobody reads.
type text flag

func (t text) Set(string) error { return nil }
func (t text) String() string   { return t.value }
func (t text) Type() string     { return t.kind }
