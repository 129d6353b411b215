// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/api"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
)

// A set of a JSON object, and a list.
type (
	set  = map[string]any
	list = []any
)

// of is a list of n items.
func of(n int, item func(i int) any) list {
	all := make(list, n)
	for i := range all {
		all[i] = item(i)
	}
	return all
}

func textOf(format string) func(i int) any {
	return func(i int) any { return fmt.Sprintf(format, i) }
}

func labelOfGiant(i int) string { return fmt.Sprintf("giant.example.com/%040d", i) }

// labelled has n labels of about 100 bytes.
func labelled(n int, object set) set {
	labels := set{}
	for i := range n {
		labels[labelOfGiant(i)] = fmt.Sprintf("%030d", i)
	}
	object["metadata"] = set{"labels": labels}
	return object
}

// annotated has an annotation.
func annotated(key, value string, object set) set {
	object["metadata"] = set{"annotations": set{key: value}}
	return object
}

func gatewayAPIResource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: plural}
}

func core(plural string) schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource(plural)
}

// kindsBeside are the kinds of objects that others need.
var kindsBeside = map[string]string{
	"gatewayclasses": "GatewayClass", "ciliumloadbalancerippools": "CiliumLoadBalancerIPPool", "gateways": "Gateway", "services": "Service",
	"backendtlspolicies": "BackendTLSPolicy", "ingresses": "Ingress", "ciliumnodes": "CiliumNode", "configmaps": "ConfigMap", "serviceexports": "ServiceExport",
}

// noGiants are watched kinds without a row, and why.
var noGiants = map[string]string{
	"customresourcedefinitions": "only the metadata is watched, and only administrators write them",
}

// backend is a reference to a Service, which need not exist.
func backend(name string) set {
	return set{"service": set{"name": name, "port": set{"number": int64(80)}}}
}

func pathOf(value, kind string) set {
	return set{"path": value, "pathType": kind, "backend": backend("s")}
}

func rule(host string, paths ...any) set {
	r := set{"http": set{"paths": paths}}
	if host != "" {
		r["host"] = host
	}
	return r
}

func ingressSpec(rules ...any) set { return set{"ingressClassName": "cilium", "rules": rules} }

func ingressOf(what string, n int, build func(n int) set) giant {
	return giant{resource: ingressResource, kind: "Ingress", what: what, n: n, build: build}
}

// manyOf is a giant of which a crowd is so many.
func manyOf(many int, g giant) giant {
	g.many, g.long = many, true
	return g
}

// holding is a giant with finalizers.
func holding(g giant) giant {
	g.stays = true
	return g
}

// finalized has n finalizers.
func finalized(n int, object set) set {
	object["metadata"] = set{"finalizers": of(n, func(int) any { return "a/b" })}
	return object
}

const (
	modeOfIngress = "ingress.cilium.io/loadbalancer-mode"
	passesTLS     = "ingress.cilium.io/tls-passthrough"
)

// crossed has all paths at all hosts with TLS.
func crossed(n int) set {
	spec := ingressSpec(rule("", of(n/4, func(i int) any { return pathOf(fmt.Sprintf("/p%05d", i), "Prefix") })...))
	spec["tls"] = list{set{"hosts": of(n, textOf("h%05d.example.com")), "secretName": "s"}}
	return set{"spec": spec}
}

var ingressGiants = []giant{
	ingressOf("paths of one host", 27_000, func(n int) set {
		return set{"spec": ingressSpec(rule("a.example.com", of(n, func(i int) any { return pathOf(fmt.Sprintf("/p%05d", i), "Prefix") })...))}
	}),
	// Few bytes in etcd, and each path four maps where it is decoded.
	ingressOf("paths that are one", 34_000, func(n int) set {
		return set{"spec": ingressSpec(rule("", of(n, func(int) any { return pathOf("/", "Exact") })...))}
	}),
	ingressOf("hosts with TLS, each with all paths", 40_000, crossed),
	ingressOf("the same with a load balancer of its own", 40_000, func(n int) set {
		return annotated(modeOfIngress, "dedicated", crossed(n))
	}),
	ingressOf("hosts with a certificate each", 30_000, func(n int) set {
		spec := ingressSpec(rule("", pathOf("/", "Prefix")))
		spec["tls"] = of(n, func(i int) any {
			return set{"hosts": list{fmt.Sprintf("h%05d.example.com", i)}, "secretName": fmt.Sprintf("s%05d", i)}
		})
		return set{"spec": spec}
	}),
	ingressOf("certificates of one host", 30_000, func(n int) set {
		spec := ingressSpec(rule("", pathOf("/", "Prefix")))
		spec["tls"] = of(n, func(i int) any { return set{"hosts": list{"a.example.com"}, "secretName": fmt.Sprintf("s%05d", i)} })
		return set{"spec": spec}
	}),
	ingressOf("hosts with a default backend", 20_000, func(n int) set {
		spec := ingressSpec(of(n, func(i int) any { return rule(fmt.Sprintf("h%05d.example.com", i), pathOf("/a", "Exact")) })...)
		spec["defaultBackend"] = backend("s")
		return set{"spec": spec}
	}),
	ingressOf("expressions", 20_000, func(n int) set {
		return set{"spec": ingressSpec(rule("a.example.com", of(n, func(i int) any { return pathOf(fmt.Sprintf("/%05d[a-z]{1000}", i), "ImplementationSpecific") })...))}
	}),
	ingressOf("one expression", 0xffff, func(n int) set {
		return set{"spec": ingressSpec(rule("a.example.com", pathOf("/"+strings.Repeat(".{1000}", n/7), "ImplementationSpecific")))}
	}),
	ingressOf("hosts whose TLS is passed through", 20_000, func(n int) set {
		return annotated(passesTLS, "enabled", set{"spec": ingressSpec(of(n, func(i int) any { return rule(fmt.Sprintf("h%05d.example.com", i), pathOf("/", "Prefix")) })...)})
	}),
	manyOf(1000, ingressOf("annotations", 60, func(n int) set {
		annotations := set{}
		for i := range n {
			annotations[fmt.Sprintf("giant.example.com/%d", i)] = strings.Repeat("x", 4096)
		}
		return set{"metadata": set{"annotations": annotations}, "spec": ingressSpec(rule("a.example.com", pathOf("/", "Prefix")))}
	})),
	// Most are cut, and their hosts stay.
	manyOf(1000, ingressOf("hosts", 1000, func(n int) set {
		return set{"spec": ingressSpec(of(n, func(i int) any { return rule(fmt.Sprintf("h%05d.example.com", i), pathOf("/", "Prefix")) })...)}
	})),
	ingressOf("hosts without paths", 60_000, func(n int) set {
		return set{"spec": ingressSpec(of(n, func(i int) any { return set{"host": fmt.Sprintf("h%05d.a", i)} })...)}
	}),
	holding(ingressOf("finalizers", 290_000, func(n int) set {
		return finalized(n, set{"spec": ingressSpec(rule("a.example.com", pathOf("/", "Prefix")))})
	})),
	ingressOf("a setting that is none", 250_000, func(n int) set {
		return annotated(modeOfIngress, strings.Repeat("x", n), set{"spec": ingressSpec(rule("a.example.com", pathOf("/", "Prefix")))})
	}),
}

func policyOf(resource schema.GroupVersionResource, kind, what string, n int, spec func(n int) set) giant {
	return giant{resource: resource, kind: kind, what: what, long: kind == "CiliumClusterwideNetworkPolicy" && what != "rules" || !inShort[what], global: kind == "CiliumClusterwideNetworkPolicy", n: n, build: func(n int) map[string]any {
		s := spec(n)
		if s["specs"] != nil {
			return s
		}
		if s["endpointSelector"] == nil {
			s["endpointSelector"] = set{}
		}
		if s["egress"] == nil && s["ingress"] == nil {
			s["ingress"] = list{set{}}
		}
		return set{"spec": s}
	}}
}

// httpRules allow paths.
func httpRules(paths list) set {
	return set{"ingress": list{set{"toPorts": list{set{"ports": list{set{"port": "80", "protocol": "TCP"}}, "rules": set{"http": paths}}}}}}
}

// inShort are those that cost most.
var inShort = map[string]bool{
	"one expression": true, "expressions": true, "rules": true, "secrets": true, "groups of a cloud": true,
	"values of a selector that are none": true, "rules that are not valid": true, "rules that have nothing": true, "selectors, and a group of a cloud": true,
}

// policyGiants are those of both kinds of policies.
func policyGiants() (all []giant) {
	for _, kind := range []string{"CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy"} {
		k, _ := api.KindNamed(kind)
		add := func(what string, n int, spec func(n int) set) {
			all = append(all, policyOf(k.Resource, kind, what, n, spec))
		}
		// Number 3.1 of the contract's tenants.md.
		add("one expression", 20_000, func(n int) set { return httpRules(list{set{"path": strings.Repeat(".{1000}", n/7)}}) })
		add("expressions", 40_000, func(n int) set {
			return httpRules(of(n, func(i int) any { return set{"path": fmt.Sprintf("/%05d[a-z]{1000}", i)} }))
		})
		add("CIDRs", 90_000, func(n int) set {
			return set{"ingress": list{set{"fromCIDR": of(n, func(i int) any { return fmt.Sprintf("10.%d.%d.0/24", i>>8&0xff, i&0xff) })}}}
		})
		add("exceptions of a CIDR", 70_000, func(n int) set {
			return set{"ingress": list{set{"fromCIDRSet": list{set{"cidr": "10.0.0.0/8", "except": of(n, func(i int) any { return fmt.Sprintf("10.%d.%d.0/24", i>>8&0xff, i&0xff) })}}}}}
		})
		add("values of a selector", 120_000, func(n int) set {
			return set{"endpointSelector": set{"matchExpressions": list{set{"key": "a", "operator": "In", "values": of(n, textOf("v%06d"))}}}}
		})
		add("values of a selector that are none", 350_000, func(n int) set {
			return set{"endpointSelector": set{"matchExpressions": list{set{"key": "a", "operator": "In", "values": of(n, func(int) any { return "!" })}}}}
		})
		add("rules that are not valid", 23_000, func(n int) set {
			return set{"specs": of(n, func(int) any {
				return set{"endpointSelector": set{"matchLabels": set{"!": ""}}, "ingress": list{set{}}}
			})}
		})
		add("rules", 60_000, func(n int) set {
			return set{"ingress": of(n, func(int) any { return set{"fromEntities": list{"all"}} })}
		})
		add("rules that have nothing", 480_000, func(n int) set {
			return set{"egress": of(n, func(int) any { return set{} })}
		})
		add("names of hosts", 20_000, func(n int) set {
			return set{"egress": list{set{"toFQDNs": of(n, func(i int) any { return set{"matchPattern": fmt.Sprintf("*.%05d.*.example.com", i)} })}}}
		})
		add("secrets", 20_000, func(n int) set {
			return httpRules(list{set{"headerMatches": of(n, func(i int) any {
				return set{"name": "h", "secret": set{"namespace": attacker, "name": fmt.Sprint("s", i)}}
			})}})
		})
		labelsOf := func(n int, more ...any) set { // each two maps where it is decoded
			return set{"endpointSelector": set{}, "egress": append(list{set{"toEndpoints": of(n, func(int) any { return set{"matchLabels": set{"a": ""}} })}}, more...)}
		}
		group := set{"toGroups": list{set{"aws": set{"securityGroupsIds": list{"sg-1"}}}}}
		add("selectors, and a group of a cloud", 14_000, func(n int) set { return labelsOf(n, group) })
		add("selectors of several rules, and a group of a cloud", 60_000, func(n int) set {
			return set{"specs": list{labelsOf(n/3, group), labelsOf(n / 3), labelsOf(n / 3)}}
		})
		add("groups of a cloud", 60_000, func(n int) set {
			return set{"egress": list{set{"toGroups": list{set{"aws": set{"securityGroupsIds": of(n, textOf("sg-%08d"))}}}}}}
		})
	}
	return all
}

// wholeGateway has 64 listeners, each of a port.
func wholeGateway(name string) set {
	return set{"metadata": set{"name": name, "namespace": attacker}, "spec": set{
		"gatewayClassName": "cilium",
		"listeners": of(64, func(i int) any {
			return set{"name": fmt.Sprint("l", i), "protocol": "HTTP", "port": int64(8000 + i)}
		}),
	}}
}

func aService(name string) set {
	return set{"metadata": set{"name": name, "namespace": attacker}, "spec": set{"ports": ports(80)}}
}

var gatewayBeside = []beside{{gatewayAPIResource("gateways"), wholeGateway("whole")}, {services, aService("s")}}

var toWhole = list{set{"name": "whole"}}

// refs are 16 references to a backend, with 16 headers of n times a value each.
func refs(n int, value string) list {
	return of(16, func(i int) any {
		ref := set{"name": "s", "port": int64(80)}
		if n > 0 {
			ref["filters"] = list{set{"type": "RequestHeaderModifier", "requestHeaderModifier": set{"set": of(16, func(j int) any {
				return set{"name": fmt.Sprintf("h%d-%d", i, j), "value": strings.Repeat(value, n)}
			})}}}
		}
		return ref
	})
}

var hostnames = of(16, textOf("h%02d.example.com"))

func gatewayOf(plural, kind, what string, n int, build func(n int) set) giant {
	return giant{resource: gatewayAPIResource(plural), kind: kind, what: what, n: n, build: build, beside: gatewayBeside}
}

// httpRoute has n matches with all backends, at all listeners, for all host names.
func httpRoute(matches, n int, value string) set {
	return set{"spec": set{"parentRefs": toWhole, "hostnames": hostnames, "rules": of(max(1, matches/64), func(r int) any {
		return set{"backendRefs": refs(n, value), "matches": of(min(64, matches), func(i int) any {
			return set{"path": set{"type": "Exact", "value": fmt.Sprintf("/%d/%d", r, i)}}
		})}
	})}}
}

// redirects has n matches that are redirected to the port of each listener.
func redirects(n int) set {
	route := httpRoute(n, 0, "")
	for _, r := range route["spec"].(set)["rules"].(list) {
		rule := r.(set)
		delete(rule, "backendRefs")
		rule["filters"] = list{set{"type": "RequestRedirect", "requestRedirect": set{"hostname": "a.example.com"}}}
	}
	return route
}

// filtered has 128 matches at all listeners, for all host names, in rules with filters.
func filtered(rules int, filters func(rule int) list) set {
	return set{"spec": set{"parentRefs": toWhole, "hostnames": hostnames, "rules": of(rules, func(r int) any {
		return set{"filters": filters(r), "backendRefs": list{set{"name": "s", "port": int64(80)}}, "matches": of(128/rules, func(i int) any {
			return set{"path": set{"type": "Exact", "value": fmt.Sprintf("/%d/%d", r, i)}}
		})}
	})}}
}

// headerNames are names of headers of n bytes.
func headerNames(items, n int) list {
	return of(items, func(i int) any { return fmt.Sprintf("x%0*d", n-1, i) })
}

// corsOf has origins and names of headers of n bytes.
func corsOf(n int) list {
	return list{set{"type": "CORS", "cors": set{
		"allowOrigins": of(64, func(i int) any { return fmt.Sprintf("https://%0*d", n-len("https://"), i) }),
		"allowHeaders": headerNames(63, n), "exposeHeaders": headerNames(63, n),
	}}}
}

// removing has headers removed.
func removing(n int) list {
	return list{set{"type": "RequestHeaderModifier", "requestHeaderModifier": set{"remove": headerNames(16, n)}}}
}

// newPath has the path replaced by one of n bytes.
func newPath(n int) set {
	return set{"path": set{"type": "ReplaceFullPath", "replaceFullPath": "/" + strings.Repeat("p", n-1)}}
}

// askingWith has a server asked with names of headers of n bytes.
func askingWith(n int) func(rule int) list {
	return func(rule int) list {
		return list{set{"type": "ExternalAuth", "externalAuth": set{"protocol": "HTTP", "backendRef": set{"name": "s", "port": int64(80)}, "http": set{
			"path": fmt.Sprintf("/%01000d", rule), "allowedHeaders": headerNames(64, n), "allowedResponseHeaders": headerNames(64, n),
		}}}}
	}
}

func certificateRefs(n int) list {
	return of(64, func(i int) any { return set{"name": fmt.Sprintf("%0*d", n, i)} })
}

// tlsListeners are 64 listeners with 64 certificates each, of names of n bytes.
func tlsListeners(n int) list {
	return of(64, func(i int) any {
		return set{"name": fmt.Sprint("l", i), "protocol": "HTTPS", "port": int64(443), "hostname": fmt.Sprintf("h%d.example.com", i), "tls": set{"certificateRefs": certificateRefs(n)}}
	})
}

var gatewayGiants = []giant{
	gatewayOf("gateways", "Gateway", "certificates", 250, func(n int) set {
		return set{"spec": set{"gatewayClassName": "cilium", "listeners": tlsListeners(n)}}
	}),
	gatewayOf("gateways", "Gateway", "annotations that its Service inherits", 2000, func(n int) set {
		annotations := set{}
		for i := range n {
			annotations[fmt.Sprintf("a%05d.example.com/%05d", i, i)] = strings.Repeat("v", 90)
		}
		return set{"spec": set{"gatewayClassName": "cilium", "listeners": wholeGateway("")["spec"].(set)["listeners"], "infrastructure": set{}}, "metadata": set{"annotations": annotations}}
	}),
	holding(gatewayOf("gateways", "Gateway", "finalizers", 290_000, func(n int) set {
		return finalized(n, set{"spec": set{"gatewayClassName": "cilium", "listeners": list{set{"name": "a", "protocol": "HTTP", "port": int64(80)}}}})
	})),
	holding(gatewayOf("httproutes", "HTTPRoute", "finalizers", 290_000, func(n int) set { return finalized(n, httpRoute(1, 0, "")) })),
	gatewayOf("listenersets", "ListenerSet", "certificates", 250, func(n int) set {
		return set{"spec": set{"parentRef": set{"name": "whole"}, "listeners": tlsListeners(n)}}
	}),
	gatewayOf("httproutes", "HTTPRoute", "matches at all listeners", 1, func(int) set { return httpRoute(128, 0, "") }),
	gatewayOf("httproutes", "HTTPRoute", "redirects at all listeners", 1, func(int) set { return redirects(128) }),
	gatewayOf("httproutes", "HTTPRoute", "edits of headers of each backend", 4096, func(n int) set { return httpRoute(64, n, "v") }),
	gatewayOf("httproutes", "HTTPRoute", "values of headers that have to be changed", 4096, func(n int) set { return httpRoute(64, n, "%") }),
	gatewayOf("httproutes", "HTTPRoute", "origins and headers of CORS", 253, func(n int) set { return filtered(2, func(int) list { return corsOf(n) }) }),
	gatewayOf("httproutes", "HTTPRoute", "headers that are removed", 15_000, func(n int) set { return filtered(2, func(int) list { return removing(n) }) }),
	gatewayOf("httproutes", "HTTPRoute", "headers that are removed, with long names", 60_000, func(n int) set { return filtered(2, func(int) list { return removing(n / 2) }) }),
	// One of them is written.
	gatewayOf("httproutes", "HTTPRoute", "matches that are one, with edits of headers", 4096, func(n int) set {
		route := httpRoute(1, 0, "")
		route["spec"].(set)["rules"] = of(16, func(r int) any {
			rule := set{"backendRefs": list{set{"name": "s", "port": int64(80)}}, "matches": of(8, func(int) any {
				return set{"path": set{"type": "Exact", "value": "/a"}}
			})}
			if r > 0 {
				rule["filters"] = list{set{"type": "RequestHeaderModifier", "requestHeaderModifier": set{"set": of(16, func(i int) any {
					return set{"name": fmt.Sprint("h", i), "value": strings.Repeat("v", n)}
				})}}}
			}
			return rule
		})
		return route
	}),
	gatewayOf("httproutes", "HTTPRoute", "paths that are replaced", 1024, func(n int) set {
		return filtered(2, func(int) list { return list{set{"type": "URLRewrite", "urlRewrite": newPath(n)}} })
	}),
	gatewayOf("httproutes", "HTTPRoute", "servers that are asked, with headers", 256, func(n int) set { return filtered(8, askingWith(n)) }),
	gatewayOf("httproutes", "HTTPRoute", "expressions", 1, func(int) set {
		return set{"spec": set{"parentRefs": toWhole, "hostnames": hostnames, "rules": of(2, func(r int) any {
			return set{"matches": of(64, func(i int) any {
				return set{"path": set{"type": "RegularExpression", "value": "/" + strings.Repeat("[a-z]{1000}", 80)}, "headers": of(16, func(h int) any {
					return set{"type": "RegularExpression", "name": fmt.Sprint("h", h), "value": strings.Repeat("[a-z]{1000}", 40)}
				})}
			})}
		})}}
	}),
	gatewayOf("grpcroutes", "GRPCRoute", "headers of matches", 4096, func(n int) set {
		return set{"spec": set{"parentRefs": toWhole, "hostnames": hostnames, "rules": of(2, func(r int) any {
			return set{"backendRefs": list{set{"name": "s", "port": int64(80)}}, "matches": of(64, func(i int) any {
				return set{"method": set{"service": fmt.Sprint("s", r), "method": fmt.Sprint("m", i)}, "headers": of(16, func(h int) any {
					return set{"name": fmt.Sprint("h", h), "value": strings.Repeat("v", n)}
				})}
			})}
		})}}
	}),
	gatewayOf("tlsroutes", "TLSRoute", "host names", 16, func(n int) set {
		return labelled(2000, set{"spec": set{"parentRefs": toWhole, "hostnames": hostnames, "rules": list{set{"backendRefs": refs(0, "")}}}})
	}),
	gatewayOf("tcproutes", "TCPRoute", "labels", 9000, func(n int) set {
		return labelled(n, set{"spec": set{"parentRefs": toWhole, "rules": list{set{"backendRefs": refs(0, "")}}}})
	}),
	gatewayOf("udproutes", "UDPRoute", "labels", 9000, func(n int) set {
		return labelled(n, set{"spec": set{"parentRefs": toWhole, "rules": list{set{"backendRefs": refs(0, "")}}}})
	}),
	{resource: gatewayAPIResource("referencegrants"), kind: "ReferenceGrant", what: "labels", n: 9000, build: func(n int) map[string]any {
		return labelled(n, set{"spec": set{
			"from": of(16, func(i int) any {
				return set{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": fmt.Sprint("n", i)}
			}),
			"to": list{set{"group": "", "kind": "Service"}},
		}})
	}},
	gatewayOf("backendtlspolicies", "BackendTLSPolicy", "labels", 9000, func(n int) set {
		return labelled(n, set{"spec": set{
			"targetRefs": of(16, func(i int) any { return set{"group": "", "kind": "Service", "name": fmt.Sprint("s", i)} }),
			"validation": set{"hostname": "a.example.com", "caCertificateRefs": of(8, func(i int) any { return set{"group": "", "kind": "ConfigMap", "name": fmt.Sprint("giant-", i)} })},
		}})
	}),
	{resource: gatewayAPIResource("gatewayclasses"), kind: "GatewayClass", what: "labels", global: true, n: 9000, build: func(n int) map[string]any {
		return labelled(n, set{"spec": set{"controllerName": "io.cilium/gateway-controller"}})
	}},
	{resource: v2alpha1.CiliumGatewayClassConfigResource, kind: "CiliumGatewayClassConfig", what: "ranges", n: 60_000, build: func(n int) map[string]any {
		return set{"spec": set{"service": set{"loadBalancerSourceRanges": of(n, func(i int) any { return fmt.Sprintf("10.%d.%d.0/24", i>>8&0xff, i&0xff) })}}}
	}},
}

// portList are n ports.
func portList(n int) list {
	return of(n, func(i int) any { return set{"name": fmt.Sprint("p", i), "port": int64(1 + i), "protocol": "TCP"} })
}

func serviceOf(what string, n int, build func(n int) set) giant {
	return giant{resource: services, kind: "Service", what: what, n: n, build: build, long: !strings.Contains(what, "ports") && what != "addresses that it asks for"}
}

// certificate is PEM of n bytes, which is no certificate.
func certificates(n int) string {
	block := "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 30))) + "\n-----END CERTIFICATE-----\n"
	return strings.Repeat(block, n/len(block))
}

// trusting is a policy that refers to a ConfigMap.
var trusting = []beside{
	{services, aService("s")}, {gatewayAPIResource("gateways"), wholeGateway("whole")},
	{gatewayAPIResource("backendtlspolicies"), set{"metadata": set{"name": "tls", "namespace": attacker}, "spec": set{
		"targetRefs": list{set{"group": "", "kind": "Service", "name": "s"}},
		"validation": set{"hostname": "a.example.com", "caCertificateRefs": list{set{"group": "", "kind": "ConfigMap", "name": "giant-0"}}},
	}}},
}

// withCertificate is a Gateway that uses the Secret of a number.
func withCertificate(i int) []beside {
	return []beside{{gatewayAPIResource("gateways"), set{"metadata": set{"name": fmt.Sprint("gw-", i), "namespace": attacker}, "spec": set{"gatewayClassName": "cilium", "listeners": list{
		set{"name": "a", "protocol": "HTTPS", "port": int64(443), "tls": set{"certificateRefs": list{set{"name": fmt.Sprint("giant-", i)}}}},
	}}}}}
}

// withAuthority is a policy that refers to the ConfigMap of a number, for a Service of its own.
func withAuthority(i int) []beside {
	service := fmt.Sprint("s-", i)
	return []beside{
		{services, aService(service)},
		{gatewayAPIResource("backendtlspolicies"), set{"metadata": set{"name": fmt.Sprint("tls-", i), "namespace": attacker}, "spec": set{
			"targetRefs": list{set{"group": "", "kind": "Service", "name": service}},
			"validation": set{"hostname": "a.example.com", "caCertificateRefs": list{set{"group": "", "kind": "ConfigMap", "name": fmt.Sprint("giant-", i)}}},
		}}},
	}
}

// withService is the Service that the ServiceExport of a number exports.
func withService(i int) []beside { return []beside{{services, aService(fmt.Sprint("giant-", i))}} }

// exported is a Service that other clusters see.
var exported = set{"metadata": set{"name": "s", "namespace": attacker, "annotations": set{globalService: "true"}}, "spec": set{"ports": ports(80)}}

// sliceOfOurs is an EndpointSlice that bears the label of a manager of the operator.
func sliceOfOurs(what, manager string, labels set) giant {
	return giant{resource: endpointSlices, kind: "EndpointSlice", what: what, n: 1000, long: true, build: func(n int) map[string]any {
		all := set{"kubernetes.io/service-name": "s", "endpointslice.kubernetes.io/managed-by": manager}
		maps.Copy(all, labels)
		return set{"metadata": set{"labels": all}, "addressType": "IPv4", "ports": ports(80), "endpoints": of(n, func(i int) any {
			return set{"addresses": of(100, func(j int) any { return fmt.Sprintf("10.%d.%d.%d", i>>8, i&0xff, j) }), "zone": "z"}
		})}
	}, beside: []beside{{services, exported}}}
}

var coreGiants = []giant{
	serviceOf("ports of a load balancer", 40_000, func(n int) set {
		return annotated("service.cilium.io/global", "true", set{"spec": set{"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": portList(n)}})
	}),
	serviceOf("ports that Envoy balances", 40_000, func(n int) set {
		return annotated("service.cilium.io/lb-l7", "enabled", set{"spec": set{"ports": portList(n)}})
	}),
	serviceOf("addresses that it asks for", 16_000, func(n int) set {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("10.99.%d.%d", i>>8, i&0xff))
		}
		return annotated("lbipam.cilium.io/ips", strings.Join(all, ","), set{"spec": set{"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports(80)}})
	}),
	serviceOf("names of a key to share addresses", 250_000, func(n int) set {
		return annotated("lbipam.cilium.io/sharing-key", strings.Repeat("x", n), set{"spec": set{"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports(80)}})
	}),
	serviceOf("addresses of its own", 80_000, func(n int) set {
		return set{"spec": set{"ports": ports(80), "externalIPs": of(n, func(i int) any { return fmt.Sprintf("10.98.%d.%d", i>>8&0xff, i&0xff) })}}
	}),
	serviceOf("labels", 9000, func(n int) set {
		return labelled(n, set{"spec": set{"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports(80)}})
	}),
	{resource: endpointSlices, kind: "EndpointSlice", what: "addresses", n: 1000, build: func(n int) map[string]any {
		return set{"metadata": set{"labels": set{"kubernetes.io/service-name": "s"}}, "addressType": "IPv4", "ports": ports(80), "endpoints": of(n, func(i int) any {
			return set{"addresses": of(60, func(j int) any { return fmt.Sprintf("10.%d.%d.%d", i>>8, i&0xff, j) }), "zone": "z"}
		})}
	}, beside: []beside{{services, exported}}},
	{resource: endpointSlices, kind: "EndpointSlice", what: "addresses, each with all ports", n: 400, build: func(n int) map[string]any {
		return set{"metadata": set{"labels": set{"kubernetes.io/service-name": "s"}}, "addressType": "IPv4", "ports": portList(30 * n), "endpoints": of(n, func(i int) any {
			return set{"addresses": of(100, func(j int) any { return fmt.Sprintf("10.%d.%d.%d", i>>8, i&0xff, j) })}
		})}
	}, beside: []beside{{services, exported}}},
	{resource: endpointSlices, kind: "EndpointSlice", what: "ports", n: 20_000, build: func(n int) map[string]any {
		return set{"metadata": set{"labels": set{"kubernetes.io/service-name": "s"}}, "addressType": "IPv4", "ports": portList(n), "endpoints": list{set{"addresses": list{"10.1.1.1"}}}}
	}, beside: []beside{{services, exported}}},
	sliceOfOurs("addresses, in a slice of the mesh", "endpointslice-mesh-controller.cilium.io", set{"multicluster.kubernetes.io/source-cluster": "peer"}),
	sliceOfOurs("addresses, in a copy of a slice", "endpointslice-local-mcsapi-controller.cilium.io", set{"multicluster.kubernetes.io/service-name": "s"}),
	sliceOfOurs("addresses, in a slice of a Gateway", "cilium-operator", set{"gateway.networking.k8s.io/gateway-name": "whole"}),
	{resource: core("pods"), kind: "Pod", what: "labels", n: 14_000, build: func(n int) map[string]any {
		return labelled(n, aPod(nil))
	}},
	{resource: core("pods"), kind: "Pod", what: "ports", n: 20_000, build: func(n int) map[string]any {
		return aPod(of(n, func(i int) any { return set{"name": fmt.Sprint("p", i), "containerPort": int64(1 + i)} }))
	}},
	{resource: core("secrets"), each: withCertificate, kind: "Secret", what: "data", n: 1 << 20, build: func(n int) map[string]any {
		text := base64.StdEncoding.EncodeToString([]byte(certificates(n - 100)))
		return set{"type": "kubernetes.io/tls", "data": set{"tls.crt": text, "tls.key": "eA=="}}
	}, beside: []beside{{gatewayAPIResource("gateways"), set{"metadata": set{"name": "whole", "namespace": attacker}, "spec": set{"gatewayClassName": "cilium", "listeners": list{
		set{"name": "a", "protocol": "HTTPS", "port": int64(443), "tls": set{"certificateRefs": list{set{"name": "giant-0"}}}},
	}}}}}},
	{resource: core("configmaps"), each: withAuthority, kind: "ConfigMap", what: "beginnings of authorities", n: 1 << 20, build: func(n int) map[string]any {
		const begin = "-----BEGIN CERTIFICATE-----\n"
		return set{"data": set{"ca.crt": strings.Repeat(begin, (n-100)/len(begin))}}
	}, beside: trusting},
	{resource: core("configmaps"), each: withAuthority, kind: "ConfigMap", what: "authorities", n: 1 << 20, build: func(n int) map[string]any {
		return set{"data": set{"ca.crt": certificates(n - 100)}}
	}, beside: trusting},
	{resource: core("endpoints"), kind: "Endpoints", what: "addresses", n: 60_000, build: func(n int) map[string]any {
		return set{"metadata": set{"labels": set{"cilium.io/ingress": "true"}}, "subsets": list{set{"ports": ports(80), "addresses": of(n, func(i int) any { return set{"ip": fmt.Sprintf("10.95.%d.%d", i>>8&0xff, i&0xff)} })}}}
	}},
	{resource: core("serviceaccounts"), kind: "ServiceAccount", what: "labels", n: 14_000, build: func(n int) map[string]any { return labelled(n, set{}) }},
	{resource: core("namespaces"), kind: "Namespace", what: "labels", global: true, n: 14_000, build: func(n int) map[string]any {
		object := labelled(n, set{})
		object["metadata"].(set)["labels"].(set)["io.cilium/mtls-enabled"] = "true"
		return object
	}},
	{resource: core("nodes"), kind: "Node", what: "labels", global: true, n: 14_000, build: func(n int) map[string]any { return labelled(n, set{}) }},
	{resource: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingressclasses"}, kind: "IngressClass", what: "labels", global: true, n: 14_000, build: func(n int) map[string]any {
		return labelled(n, set{"spec": set{"controller": "cilium.io/ingress-controller"}})
	}},
}

func aPod(ports list) set {
	container := set{"name": "c", "image": "i"}
	if ports != nil {
		container["ports"] = ports
	}
	return set{"spec": set{"containers": list{container}, "serviceAccountName": "default", "automountServiceAccountToken": false}}
}

// values selects by one of n values.
func values(n int) set {
	return set{"matchExpressions": list{set{"key": "a", "operator": "In", "values": of(n, textOf("v%06d"))}}}
}

func ciliumOf(resource schema.GroupVersionResource, kind, what string, n int, build func(n int) set) giant {
	return giant{
		resource: resource, kind: kind, what: what, global: kind != "CiliumEndpoint" && kind != "CiliumEnvoyConfig", n: n, build: build,
		long: what == "values of a selector" && kind != "CiliumBGPPeerConfig" || kind == "CiliumNode" && what != "CIDRs of a pool",
	}
}

// edited is the configuration of a Gateway, in place of what the operator wrote.
func edited(g giant) giant {
	gateway := func(i int) []beside {
		return []beside{{gatewayAPIResource("gateways"), set{"metadata": set{"name": fmt.Sprint("giant-", i), "namespace": attacker}, "spec": set{
			"gatewayClassName": "cilium", "listeners": list{set{"name": "a", "protocol": "HTTP", "port": int64(80)}},
		}}}}
	}
	g.ours, g.beside, g.each = "cilium-gateway-", gateway(0), gateway
	return g
}

// fewer is a giant of which the API server holds no hundred: each of these takes 200 MB of its memory.
func fewer(g giant) giant {
	g.many = 25
	return g
}

var ciliumGiants = []giant{
	fewer(ciliumOf(v2.CiliumEndpointResource, "CiliumEndpoint", "addresses", 50_000, func(n int) set {
		return set{"status": set{"identity": set{"id": int64(1000)}, "networking": set{"node": hostIP, "addressing": of(n, func(i int) any { return set{"ipv4": fmt.Sprintf("10.97.%d.%d", i>>8&0xff, i&0xff)} })}}}
	})),
	fewer(ciliumOf(v2.CiliumEndpointResource, "CiliumEndpoint", "named ports", 25_000, func(n int) set {
		return set{"status": set{"identity": set{"id": int64(1000)}, "networking": set{"node": hostIP, "addressing": list{set{"ipv4": "10.1.1.1"}}},
			"named-ports": of(n, func(i int) any { return set{"name": fmt.Sprint("p", i), "port": int64(i), "protocol": "TCP"} })}}
	})),
	ciliumOf(v2.CiliumEndpointResource, "CiliumEndpoint", "name of an account", 1_400_000, func(n int) set {
		return set{"status": set{"identity": set{"id": int64(1000)}, "networking": set{"node": hostIP, "addressing": list{set{"ipv4": "10.1.1.1"}}}, "service-account": strings.Repeat("x", n)}}
	}),
	ciliumOf(v2.CiliumIdentityResource, "CiliumIdentity", "labels", 25_000, func(n int) set {
		labels := set{}
		for i := range n {
			labels[fmt.Sprintf("k8s:label-%06d", i)] = fmt.Sprintf("%06d", i)
		}
		return set{"security-labels": labels}
	}),
	ciliumOf(v2alpha1.CiliumEndpointSliceResource, "CiliumEndpointSlice", "endpoints", 12_000, func(n int) set {
		return set{"namespace": attacker, "endpoints": of(n, func(i int) any {
			return set{"name": fmt.Sprint("e", i), "id": int64(1000), "networking": set{"node": hostIP, "addressing": list{set{"ipv4": "10.1.1.1"}}}}
		})}
	}),
	ciliumOf(v2.CiliumNodeResource, "CiliumNode", "CIDRs", 60_000, func(n int) set {
		return set{"spec": set{"ipam": set{"podCIDRs": of(n, func(i int) any { return fmt.Sprintf("10.%d.%d.0/24", i>>8&0xff, i&0xff) })}}}
	}),
	ciliumOf(v2.CiliumNodeResource, "CiliumNode", "pools", 16_000, func(n int) set {
		return set{"spec": set{"ipam": set{"pools": set{
			"requested": of(n, func(i int) any { return set{"pool": fmt.Sprint("p", i), "needed": set{"ipv4-addrs": int64(16)}} }),
		}}}}
	}),
	ciliumOf(v2.CiliumNodeResource, "CiliumNode", "CIDRs of a pool", 60_000, func(n int) set {
		return set{"spec": set{"ipam": set{"pools": set{"allocated": list{set{"pool": "p", "cidrs": of(n, func(i int) any { return fmt.Sprintf("10.%d.%d.0/24", i>>8&0xff, i&0xff) })}}}}}}
	}),
	ciliumOf(v2.CiliumNodeResource, "CiliumNode", "addresses", 20_000, func(n int) set {
		return set{"spec": set{"addresses": of(n, func(i int) any { return set{"type": "InternalIP", "ip": fmt.Sprintf("10.96.%d.%d", i>>8&0xff, i&0xff)} })}}
	}),
	ciliumOf(v2.CiliumLoadBalancerIPPoolResource, "CiliumLoadBalancerIPPool", "blocks", 45_000, func(n int) set {
		return set{"spec": set{"blocks": of(n, func(i int) any { return set{"cidr": fmt.Sprintf("11.%d.%d.0/24", i>>8&0xff, i&0xff)} })}}
	}),
	ciliumOf(v2.CiliumLoadBalancerIPPoolResource, "CiliumLoadBalancerIPPool", "values of a selector", 120_000, func(n int) set {
		return set{"spec": set{"blocks": list{set{"cidr": "11.0.0.0/24"}}, "serviceSelector": values(n)}}
	}),
	ciliumOf(v2alpha1.CiliumPodIPPoolResource, "CiliumPodIPPool", "CIDRs", 60_000, func(n int) set {
		return set{"spec": set{"ipv4": set{"maskSize": int64(28), "cidrs": of(n, func(i int) any { return fmt.Sprintf("11.%d.%d.0/24", i>>8&0xff, i&0xff) })}}}
	}),
	ciliumOf(v2.CiliumCIDRGroupResource, "CiliumCIDRGroup", "CIDRs", 60_000, func(n int) set {
		return set{"spec": set{"externalCIDRs": of(n, func(i int) any { return fmt.Sprintf("11.%d.%d.0/24", i>>8&0xff, i&0xff) })}}
	}),
	ciliumOf(v2.CiliumEnvoyConfigResource, "CiliumEnvoyConfig", "resources", 12_000, func(n int) set {
		return set{"spec": set{"resources": of(n, func(i int) any {
			return set{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": fmt.Sprintf("cluster-%d", i), "deep": set{"a": list{set{"b": int64(i)}}}}
		})}}
	}),
	edited(ciliumOf(v2.CiliumEnvoyConfigResource, "CiliumEnvoyConfig", "small objects in place of what the operator wrote", 230_000, func(n int) set {
		return set{"spec": set{"resources": list{set{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c", "deep": of(n, func(int) any { return set{"a": int64(0)} })}}}}
	})),
	// They are none that the operator wrote, and say that they are.
	ciliumOf(v2.CiliumEnvoyConfigResource, "CiliumEnvoyConfig", "names of secrets", 45_000, func(n int) set {
		return set{
			"metadata": set{"ownerReferences": list{set{"apiVersion": "x/v1", "kind": "Gateway", "name": "g", "uid": "u", "controller": true}}},
			"spec":     set{"resources": of(n, func(i int) any { return set{"name": fmt.Sprintf("cilium-secrets/%05d", i)} })},
		}
	}),
	ciliumOf(v2.CiliumBGPClusterConfigResource, "CiliumBGPClusterConfig", "peers", 8000, func(n int) set {
		return set{"spec": set{"bgpInstances": list{set{"name": "i", "localASN": int64(64512), "peers": of(n, func(i int) any {
			return set{"name": fmt.Sprint("p", i), "peerASN": int64(64513), "peerAddress": fmt.Sprintf("10.1.%d.%d", i>>8, i&0xff), "peerConfigRef": set{"name": fmt.Sprint("c", i)}}
		})}}}}
	}),
	ciliumOf(v2.CiliumBGPClusterConfigResource, "CiliumBGPClusterConfig", "values of a selector", 120_000, func(n int) set {
		return set{"spec": set{"nodeSelector": values(n), "bgpInstances": list{set{"name": "i", "localASN": int64(64512)}}}}
	}),
	ciliumOf(v2.CiliumBGPNodeConfigOverrideResource, "CiliumBGPNodeConfigOverride", "peers", 8000, func(n int) set {
		return set{"spec": set{"bgpInstances": list{set{"name": "i", "peers": of(n, func(i int) any { return set{"name": fmt.Sprint("p", i), "localPort": int64(179)} })}}}}
	}),
	ciliumOf(v2.CiliumBGPNodeConfigResource, "CiliumBGPNodeConfig", "peers", 8000, func(n int) set {
		return set{"spec": set{"bgpInstances": list{set{"name": "i", "localASN": int64(64512), "peers": of(n, func(i int) any { return set{"name": fmt.Sprint("p", i), "peerASN": int64(64513)} })}}}}
	}),
	ciliumOf(v2.CiliumBGPPeerConfigResource, "CiliumBGPPeerConfig", "values of a selector", 120_000, func(n int) set {
		return set{"spec": set{"families": list{set{"afi": "ipv4", "safi": "unicast", "advertisements": values(n)}}}}
	}),
	{resource: api.ServiceExportResource, each: withService, kind: "ServiceExport", what: "labels for all clusters", n: 14_000, build: func(n int) map[string]any {
		labels := set{}
		for i := range n {
			labels[fmt.Sprintf("giant.example.com/%040d", i)] = fmt.Sprintf("%030d", i)
		}
		return set{"spec": set{"exportedLabels": labels}}
	}, beside: []beside{{services, aService("giant-0")}}},
	{resource: api.ServiceImportResource, kind: "ServiceImport", what: "ports", n: 15_000, build: func(n int) map[string]any {
		return set{"spec": set{"type": "ClusterSetIP", "ports": portList(n)}}
	}},
}

// giants are the largest and most expensive objects, those that a tenant of a namespace can write first.
var giants = slices.Concat(ingressGiants, policyGiants(), gatewayGiants, coreGiants, ciliumGiants)
