// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"strings"
)

// oddity is an odd change of an object, as a merge patch of the object and of its
// status.
//
// In a patch, $CIDR is the pod CIDR of the node, $NET and $BITS its parts, $NEXT a CIDR that
// contains it and its neighbour, $OTHER the CIDR of another node or the address of another
// Service and $VERSION the version of a definition; large has the others.
type oddity struct {
	what  string
	patch string
	// deletes says that the object is deleted then, and stays since it has a finalizer.
	deletes bool
	// named is set if a duty cannot do what it should, and the user must be able to find the
	// object: the operator names it in its log, its health, an Event or on the object.
	named bool
	// opaque says that a claim on a pod CIDR is there and cannot be read at all.
	opaque bool
	// leaves says that the endpoint is not to be in a slice any more.
	leaves bool
	// frees says that the policy has no groups any more: what is derived from it may be deleted.
	frees bool
}

// onAnything are oddities of every kind.
var onAnything = []oddity{
	{what: "a huge annotation", patch: `{"metadata":{"annotations":{"example.com/huge":"` + strings.Repeat("x", 200_000) + `"}}}`},
	{what: "foreign labels", patch: `{"metadata":{"labels":{"example.com/a":"","b":"x"}}}`},
	{what: "managed by another program", patch: `{"metadata":{"annotations":{"io.cilium.heartbeat":"yesterday","meta.helm.sh/release-name":"x"},"labels":{"app.kubernetes.io/managed-by":"Helm"}}}`},
	{what: "terminating", patch: `{"metadata":{"finalizers":["example.com/never"]}}`, deletes: true, leaves: true},
}

// agentPods are the pods of agents, which have oddities of their own.
const agentPods = "agents"

// oddities are those of each resource that a duty reads, from the contracts and from what has
// happened. Those of definitions happen to kinds that no duty reads.
var oddities = map[string][]oddity{
	"ciliumnodes": {
		// The claim can be read, other fields cannot.
		{what: "encryption is a text", patch: `{"spec":{"encryption":"none"}}`},
		{what: "encryption key is an object", patch: `{"spec":{"encryption":{"key":{"a":1}}}}`},
		{what: "addresses are an object", patch: `{"spec":{"addresses":{"a":1}}}`},
		{what: "addresses of numbers", patch: `{"spec":{"addresses":[1,null,{"ip":7,"type":[]}]}}`},
		{what: "pool is a text", patch: `{"spec":{"ipam":{"pool":"x"}}}`},
		{what: "fields of a newer version", patch: `{"spec":{"ipam":{"future":{"a":[1]}},"future":7},"future":true}`},
		{what: "status is a text", patch: `{"status":"x"}`},
		{what: "status.ipam is a list", patch: `{"status":{"ipam":[1]}}`},
		{what: "operator-status is a number", patch: `{"status":{"ipam":{"operator-status":7}}}`},
		{what: "error is an object", patch: `{"status":{"ipam":{"operator-status":{"error":{"a":1}}}}}`},
		// The claim can be read in part, or otherwise.
		{what: "a number among the CIDRs", patch: `{"spec":{"ipam":{"podCIDRs":["$CIDR",7]}}}`, named: true},
		{what: "an object among the CIDRs", patch: `{"spec":{"ipam":{"podCIDRs":[{"a":"b"},"$CIDR"]}}}`, named: true},
		{what: "null among the CIDRs", patch: `{"spec":{"ipam":{"podCIDRs":[null,"$CIDR"]}}}`},
		{what: "CIDRs are a text", patch: `{"spec":{"ipam":{"podCIDRs":"$CIDR"}}}`, named: true},
		{what: "zeros before the length", patch: `{"spec":{"ipam":{"podCIDRs":["$NET/0$BITS"]}}}`},
		{what: "an IPv4 CIDR as IPv6", patch: `{"spec":{"ipam":{"podCIDRs":["::ffff:$NET/120"]}}}`},
		{what: "host bits", patch: `{"spec":{"ipam":{"podCIDRs":["$HOST/$BITS"]}}}`},
		{what: "spaces", patch: `{"spec":{"ipam":{"podCIDRs":[" $CIDR "]}}}`, named: true},
		{what: "garbage beside the CIDR", patch: `{"spec":{"ipam":{"podCIDRs":["not-a-cidr","$CIDR"]}}}`, named: true},
		{what: "garbage", patch: `{"spec":{"ipam":{"podCIDRs":["not-a-cidr"]}}}`, named: true},
		{what: "an empty text", patch: `{"spec":{"ipam":{"podCIDRs":[""]}}}`},
		{what: "too long a prefix", patch: `{"spec":{"ipam":{"podCIDRs":["$NET/33"]}}}`, named: true},
		{what: "no CIDRs", patch: `{"spec":{"ipam":{"podCIDRs":null}}}`},
		{what: "an empty list", patch: `{"spec":{"ipam":{"podCIDRs":[]}}}`},
		{what: "no spec", patch: `{"spec":null}`},
		// Claims on what others have.
		{what: "the CIDR twice", patch: `{"spec":{"ipam":{"podCIDRs":["$CIDR","$CIDR"]}}}`},
		{what: "the CIDR of another", patch: `{"spec":{"ipam":{"podCIDRs":["$OTHER"]}}}`, named: true},
		{what: "the neighbour's CIDR, too", patch: `{"spec":{"ipam":{"podCIDRs":["$NEXT"]}}}`},
		{what: "the whole pool", patch: `{"spec":{"ipam":{"podCIDRs":["10.0.0.0/16"]}}}`, named: true},
		{what: "the whole world", patch: `{"spec":{"ipam":{"podCIDRs":["0.0.0.0/0"]}}}`, named: true},
		{what: "a CIDR of elsewhere", patch: `{"spec":{"ipam":{"podCIDRs":["192.168.7.0/24"]}}}`, named: true},
		{what: "a CIDR of another family", patch: `{"spec":{"ipam":{"podCIDRs":["fd00::/112"]}}}`, named: true},
		{what: "a huge CIDR", patch: `{"spec":{"ipam":{"podCIDRs":["$HUGE"]}}}`, named: true},
		{what: "thousands of CIDRs", patch: `{"spec":{"ipam":{"podCIDRs":[$CIDRS]}}}`, named: true},
		// There is a claim, and it cannot be read.
		{what: "CIDRs are a number", patch: `{"spec":{"ipam":{"podCIDRs":7}}}`, named: true, opaque: true},
		{what: "CIDRs are an object", patch: `{"spec":{"ipam":{"podCIDRs":{"a":"b"}}}}`, named: true, opaque: true},
		{what: "ipam is a list", patch: `{"spec":{"ipam":[1]}}`, named: true, opaque: true},
		{what: "spec is a text", patch: `{"spec":"x"}`, named: true, opaque: true},
	},
	"nodes": {
		{what: "taints", patch: `{"spec":{"unschedulable":true,"taints":[{"key":"a","effect":"NoExecute"},{"key":"node.cilium.io/agent-not-ready","effect":"NoSchedule","value":"odd"}]}}`},
		{what: "pod CIDRs of somebody else", patch: `{"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"],"providerID":"odd://x"}}`},
	},
	"ciliumcidrgroups": { // of users, which no duty minds
		{what: "spec is a text", patch: `{"spec":"x"}`},
		{what: "CIDRs are numbers", patch: `{"spec":{"externalCIDRs":[1,null,{}]}}`},
		{what: "an id of a group, and no owner", patch: `{"metadata":{"labels":{"extgrp.cilium.io/x":"","extgrp.cilium.io/y":""}}}`},
	},
	"namespaces": {
		{what: "labels without values", patch: `{"metadata":{"labels":{"a.b.c/d":"","x":""}}}`},
		{what: "many labels", patch: `{"metadata":{"labels":{$LABELS}}}`},
	},
	"pods": {
		{what: "many labels", patch: `{"metadata":{"labels":{$LABELS}}}`},
		{what: "labels that look like other ones", patch: `{"metadata":{"labels":{"io.kubernetes.pod.namespace":"other","io.cilium.k8s.policy.cluster":"other","reserved":"host","a.b/c":""}}}`},
		{what: "no labels", patch: `{"metadata":{"labels":null}}`},
		{what: "the address of another pod", patch: `{"status":{"phase":"Running","podIP":"10.255.0.1","podIPs":[{"ip":"10.255.0.1"}]}}`},
		{what: "a phase that is unknown", patch: `{"status":{"phase":"Unknown"}}`},
	},
	"ciliumidentities": {
		{what: "labels are a text", patch: `{"security-labels":"x"}`, named: true},
		{what: "labels are a list", patch: `{"security-labels":["k8s:app=x"]}`, named: true},
		{what: "a label is a number", patch: `{"security-labels":{"k8s:odd":7}}`, named: true},
		{what: "a label is null", patch: `{"security-labels":{"k8s:app":null}}`},
		{what: "no labels", patch: `{"security-labels":null}`},
		{what: "other labels", patch: `{"security-labels":{"k8s:app":"evil"}}`},
		{what: "labels of another source", patch: `{"security-labels":{"K8S:App":"X","app":"y","container:a":"b","":"z"}}`},
		{what: "a huge label", patch: `{"security-labels":{"k8s:huge":"$HUGE"}}`},
		{what: "fields of a newer version", patch: `{"spec":{"a":1},"status":"x"}`},
		{what: "a mark of the far future", patch: `{"metadata":{"annotations":{"io.cilium.heartbeat":"9999-12-31T23:59:59Z"}}}`},
	},
	"ciliumendpoints": {
		{what: "identity is a number", patch: `{"status":{"identity":7}}`, named: true},
		{what: "identity.id is a text", patch: `{"status":{"identity":{"id":"12"}}}`, named: true},
		{what: "identity.id is an object", patch: `{"status":{"identity":{"id":{"a":1}}}}`, named: true},
		{what: "identity.labels is a text", patch: `{"status":{"identity":{"labels":"x"}}}`},
		{what: "networking is a text", patch: `{"status":{"networking":"x"}}`, named: true},
		{what: "addressing is an object", patch: `{"status":{"networking":{"addressing":{"ipv4":"10.0.0.1"}}}}`, named: true},
		{what: "addresses are numbers", patch: `{"status":{"networking":{"addressing":[{"ipv4":7}]}}}`, named: true},
		{what: "addresses are nonsense", patch: `{"status":{"networking":{"addressing":[{"ipv4":"x","ipv6":"FE80::1%eth0"}],"node":"y"}}}`},
		{what: "encryption is a text", patch: `{"status":{"encryption":"none"}}`, named: true},
		{what: "ports are an object", patch: `{"status":{"named-ports":{"a":1}}}`, named: true},
		{what: "ports out of range", patch: `{"status":{"named-ports":[{"name":"a","port":-1},{"name":"a","port":99999999999}]}}`},
		{what: "status is a text", patch: `{"status":"x"}`, named: true},
		{what: "fields of a newer version", patch: `{"status":{"future":[1],"policy":"x","state":7,"log":{}},"spec":"y"}`},
		{what: "the identity of nobody", patch: `{"status":{"identity":{"id":99999999}}}`},
		{what: "no identity", patch: `{"status":{"identity":null}}`, leaves: true},
		{what: "no status", patch: `{"status":null}`, leaves: true},
	},
	"ciliumendpointslices": {
		{what: "endpoints are a text", patch: `{"endpoints":"x"}`, named: true},
		{what: "endpoints are an object", patch: `{"endpoints":{"name":"x"}}`, named: true},
		{what: "a number among the endpoints", patch: `{"endpoints":[7]}`, named: true},
		{what: "a name is a number", patch: `{"endpoints":[{"name":7,"id":7}]}`, named: true},
		{what: "an id is a text", patch: `{"endpoints":[{"name":"x","id":"7"}]}`, named: true},
		{what: "networking is a text", patch: `{"endpoints":[{"name":"x","id":7,"networking":"x"}]}`, named: true},
		{what: "no endpoints", patch: `{"endpoints":null}`},
		{what: "the same endpoint twice", patch: `{"endpoints":[{"name":"x","id":7},{"name":"x","id":8}]}`},
		{what: "a namespace that is a number", patch: `{"namespace":7}`, named: true},
		{what: "no namespace", patch: `{"namespace":null}`},
		{what: "another namespace", patch: `{"namespace":"kube-system"}`},
		{what: "fields of a newer version", patch: `{"spec":{"a":1},"endpoints":[{"name":"x","id":7,"future":1}]}`},
	},
	"services": {
		{what: "an address that is none", patch: `{"metadata":{"annotations":{"lbipam.cilium.io/ips":"not-an-ip"}}}`, named: true},
		{what: "a huge list of addresses", patch: `{"metadata":{"annotations":{"lbipam.cilium.io/ips":"$ADDRESSES"}}}`, named: true},
		{what: "the address of another", patch: `{"metadata":{"annotations":{"lbipam.cilium.io/ips":"$OTHER"}}}`, named: true},
		{what: "an address of no pool", patch: `{"spec":{"loadBalancerIP":"192.0.2.1"}}`, named: true},
		{what: "a sharing key of nobody", patch: `{"metadata":{"annotations":{"lbipam.cilium.io/sharing-key":",*,","lbipam.cilium.io/sharing-cross-namespace":"*,,*"}}}`},
		{what: "the address of another in its status", patch: `{"status":{"loadBalancer":{"ingress":[{"ip":"$OTHER"}]}}}`},
		{what: "an address of no pool in its status", patch: `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"},{"hostname":"example.com"}]}}}`},
		{what: "no status", patch: `{"status":{"loadBalancer":null,"conditions":null}}`},
		{what: "conditions of others", patch: `{"status":{"conditions":[{"type":"example.com/odd","status":"Unknown","reason":"Odd","message":"","lastTransitionTime":"1970-01-01T00:00:00Z"},{"type":"cilium.io/IPAMRequestSatisfied","status":"Unknown","reason":"Odd","message":"","lastTransitionTime":"2999-01-01T00:00:00Z"}]}}`},
		{what: "another type", patch: `{"spec":{"type":"ClusterIP"}}`},
		{what: "without a cluster IP of its own", patch: `{"spec":{"type":"ExternalName","externalName":"example.com","ports":null,"clusterIP":null,"clusterIPs":null,"ipFamilies":null,"ipFamilyPolicy":null,"allocateLoadBalancerNodePorts":null,"internalTrafficPolicy":null}}`},
	},
	"ciliumloadbalancerippools": {
		{what: "a CIDR that is none", patch: `{"spec":{"blocks":[{"cidr":"x"}]}}`, named: true},
		{what: "all addresses", patch: `{"spec":{"blocks":[{"cidr":"0.0.0.0/0"}]}}`, named: true},
		{what: "a reversed range", patch: `{"spec":{"blocks":[{"start":"10.90.0.9","stop":"10.90.0.1"}]}}`, named: true},
		{what: "a range of two families", patch: `{"spec":{"blocks":[{"start":"10.90.0.9","stop":"fd00::"}]}}`, named: true},
		{what: "the addresses of another", patch: `{"spec":{"blocks":[{"cidr":"10.88.0.0/16"}]}}`, named: true},
		{what: "an empty block", patch: `{"spec":{"blocks":[{}]}}`, named: true},
		{what: "blocks are a text", patch: `{"spec":{"blocks":"10.90.0.0/24"}}`, named: true},
		{what: "a number among the blocks", patch: `{"spec":{"blocks":[7]}}`, named: true},
		{what: "a CIDR is a number", patch: `{"spec":{"blocks":[{"cidr":7}]}}`, named: true},
		{what: "a CIDR is huge", patch: `{"spec":{"blocks":[{"cidr":"$HUGE"}]}}`, named: true},
		{what: "a selector that is none", patch: `{"spec":{"serviceSelector":{"matchExpressions":[{"key":"a","operator":"Near","values":["b"]}]}}}`, named: true},
		{what: "a selector is a text", patch: `{"spec":{"serviceSelector":"a=b"}}`, named: true},
		{what: "disabled is a text", patch: `{"spec":{"disabled":"no"}}`, named: true},
		{what: "spec is a list", patch: `{"spec":[1]}`, named: true},
		{what: "no spec", patch: `{"spec":null}`},
		{what: "status is a text", patch: `{"status":"x"}`},
		{what: "conditions are an object", patch: `{"status":{"conditions":{"a":1}}}`},
		{what: "fields of a newer version", patch: `{"spec":{"future":[1]},"status":{"future":1}}`},
	},
	"ciliumnetworkpolicies":            policyOddities,
	"ciliumclusterwidenetworkpolicies": policyOddities,
	agentPods: {
		{what: "no labels", patch: `{"metadata":{"labels":null}}`},
		{what: "conditions that contradict each other", patch: `{"status":{"conditions":[{"type":"Ready","status":"Unknown"},{"type":"ContainersReady","status":"True"}]}}`},
		{what: "a condition of an unknown status", patch: `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Odd"},{"type":"example.com/odd","status":"False"}]}}`},
		{what: "failed, and ready", patch: `{"status":{"phase":"Failed"}}`},
		{what: "no conditions", patch: `{"status":{"conditions":null}}`},
	},
	"customresourcedefinitions": {
		{what: "a schema version that is none", patch: `{"metadata":{"labels":{"io.cilium.k8s.crd.schema.version":"abc"}}}`},
		{what: "a schema version of the future", patch: `{"metadata":{"labels":{"io.cilium.k8s.crd.schema.version":"999.0.0"}}}`},
		{what: "no schema version", patch: `{"metadata":{"labels":{"io.cilium.k8s.crd.schema.version":null}}}`},
		{what: "not served", patch: `{"spec":{"versions":[{"name":"$VERSION","served":false,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`},
		{what: "other short names", patch: `{"spec":{"names":{"shortNames":["odd"],"categories":["odd"]}}}`},
	},
	"leases": {
		{what: "no holder", patch: `{"spec":{"holderIdentity":null}}`},
		{what: "an empty holder", patch: `{"spec":{"holderIdentity":""}}`},
		{what: "another holder", patch: `{"spec":{"holderIdentity":"odd"}}`},
		{what: "another holder for ever", patch: `{"spec":{"holderIdentity":"odd","leaseDurationSeconds":2147483647,"renewTime":"2999-01-01T00:00:00.000000Z"}}`},
		{what: "no spec", patch: `{"spec":null}`},
		{what: "renewed long ago", patch: `{"spec":{"renewTime":"1970-01-01T00:00:00.000000Z","acquireTime":"1970-01-01T00:00:00.000000Z"}}`},
		{what: "no times", patch: `{"spec":{"renewTime":null,"acquireTime":null}}`},
		{what: "the longest duration", patch: `{"spec":{"leaseDurationSeconds":2147483647}}`},
		{what: "the last transition", patch: `{"spec":{"leaseTransitions":2147483647,"holderIdentity":"odd"}}`},
		{what: "no transitions", patch: `{"spec":{"leaseTransitions":null}}`},
		{what: "odd annotations", patch: `{"metadata":{"annotations":{"skep.dev/written":"odd","control-plane.alpha.kubernetes.io/leader":"{"}}}`},
		{what: "another holder by a strategy", patch: `{"spec":{"holderIdentity":"odd","strategy":"OldestEmulationVersion","preferredHolder":"nobody"}}`},
	},
}

// large are what some of the names in patches stand for: texts that are made when they are needed, for each operator
// is a process of this test binary.
var large = map[string]func() string{
	"$HUGE":      func() string { return strings.Repeat("x", 300_000) },
	"$CIDRS":     func() string { return manyCIDRs(4000) },
	"$ADDRESSES": func() string { return manyAddresses(5000) },
	"$LABELS":    func() string { return manyLabels(500) },
	"$PORTS":     func() string { return manyPorts(3000) },
	"$GROUPS":    func() string { return manyGroups(2000) },
}

// enlarged is the patch with its large texts.
func (o oddity) enlarged() string {
	patch := o.patch
	for name, text := range large {
		if strings.Contains(patch, name) {
			patch = strings.ReplaceAll(patch, name, text())
		}
	}
	return patch
}

func manyCIDRs(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%q", fmt.Sprintf("192.168.%d.%d/32", i/256, i%256))
	}
	return strings.Join(all, ",")
}

func manyAddresses(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("192.168.%d.%d", i/256, i%256)
	}
	return strings.Join(all, ",")
}

func manyLabels(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%q:%q", fmt.Sprintf("example.com/odd-%d", i), strings.Repeat("v", 63))
	}
	return strings.Join(all, ",")
}
