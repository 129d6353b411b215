// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package house_test

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	// streamOf declares a stream, of a type of its own package or of another one.
	streamOf    = regexp.MustCompile(`\b(?:stream\.)?(?:Core|Custom|Metadata)\[([\w.]+)(?:\[\w+\])?[,\]]`)
	commentLine = regexp.MustCompile(`(?m)^\s*//.*$`)
	cutsDown    = regexp.MustCompile(`(?m)^func \(\w+ \*(\w+)\) CutDown\(\)`)
)

// K8S-24: what a stream keeps of an object can be cut down, or has another bound, which is written here. A type that is declared as another one has
// none of its methods.
func TestStreamsHaveABound(t *testing.T) {
	declared, cutters := map[string]bool{}, map[string]bool{}
	for _, s := range allSources(t) {
		if !s.isGo() || s.isTest() || !strings.HasPrefix(s.path, "cells/") && !strings.HasPrefix(s.path, "resources/") {
			continue
		}
		folder := path.Dir(s.path)
		for _, m := range streamOf.FindAllStringSubmatch(commentLine.ReplaceAllString(s.text, ""), -1) {
			of, name, isOther := strings.Cut(m[1], ".")
			switch {
			case m[1] == "T" || s.path == "resources/stream/internal/reflector/framing.go": // no stream of its own
			case isOther:
				declared[of+"."+name] = true
			default:
				declared[path.Base(folder)+"."+of] = true
			}
		}
		for _, m := range cutsDown.FindAllStringSubmatch(s.text, -1) {
			cutters[path.Base(folder)+"."+m[1]] = true
		}
	}
	if len(declared) < 50 || len(cutters) < 20 {
		t.Fatalf("only %d streams and %d types that can be cut are found", len(declared), len(cutters))
	}
	broken := map[string]string{}
	for name := range declared {
		if !cutters[name] {
			broken[name] = "cannot be cut down"
		}
	}
	uncut.check(t, "embed slim.Cut, implement slim.Cutter, and handle what is cut; or list here what bounds it", broken)
}

// Why a type of a stream needs no slim.Cutter.
const (
	global    = "its objects are in no namespace"
	fewFields = "what is kept of an object has no list, and no text of any length but labels or annotations of the duty"
	inEtcd    = "what is kept of an object is about as large as it is in etcd at most: Trim, or its decoder, drops or packs its lists"
	bySchema  = "its definition bounds the lists"
	ofAgents  = "a pod of agents or of a system's workload: the selector of the stream leaves few"
)

var uncut = exceptions{
	"agents.Node": global, "bgp.clusterConfig": global, "bgp.node": global, "bgp.nodeConfig": global, "bgp.override": global, "bgp.peerConfig": global,
	"ciliumio.EndpointSlice": global, "ciliumio.Identity": global, "ciliumio.Node": global, "cloudipam.ciliumNode": global, "crds.crdMetadata": global,
	"derivative.cidrGroup": global, "gateway.class": global, "gateway.classConfig": bySchema, "gateway.definition": global, "gateway.namespace": global, "gateway.node": global,
	"ingress.ingressClass": global, "lbipam.poolObject": global, "multipool.podIPPool": global, "networkpolicy.ClusterwidePolicy": global,
	"nodegc.node": global, "nodeipam.node": global, "nodesync.node": global, "secretsync.gatewayClass": global, "slim.Namespace": global, "slim.Node": global,
	"stream.crd": global, "ztunnel.namespace": global,

	"gateway.configMap": fewFields, "gateway.secret": fewFields, "gateway.serviceImport": fewFields, "secretsync.configMap": fewFields,
	"secretref.Left": fewFields, "secretsync.secret": fewFields, "ztunnel.serviceAccount": fewFields,

	"gateway.grant": bySchema, "gateway.tlsPolicy": bySchema, "secretsync.backendTLSPolicy": bySchema, "secretsync.referenceGrant": bySchema,

	"agents.Pod": ofAgents, "envoy.Agent": ofAgents, "unmanaged.pod": inEtcd, "cloudipam.pendingPod": inEtcd, "slim.Pod": inEtcd,
	"ciliumio.Endpoint": inEtcd, "envoy.Endpoints": inEtcd, "envoy.Object": inEtcd, "envoy.Slice": inEtcd, "lbipam.serviceObject": inEtcd, "networkpolicy.Policy": inEtcd,
	"nodeipam.endpointSlice": inEtcd, "nodeipam.service": inEtcd, "secretsync.left": inEtcd,

	"slim.EndpointSlice": "no duty asks for it", "slim.Service": "no duty asks for it",
}
