// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"hash/maphash"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// service is what this duty reads of a Service.
type service struct {
	serviceMeta `json:"metadata"`
	Spec        serviceSpec   `json:"spec"`
	Status      serviceStatus `json:"status"`
}

type serviceMeta struct {
	slim.Meta
	Labels            slim.Subset[proxyName]    `json:"labels"`
	Annotations       slim.Subset[nodeSelector] `json:"annotations"`
	CreationTimestamp slim.Time                 `json:"creationTimestamp"`
	DeletionTimestamp slim.Time                 `json:"deletionTimestamp"`
}

// maxPorts is how many ports a Service may have that gets addresses of nodes: each is looked for among those of all others.
const maxPorts = 1000

const (
	// mostAddresses is how many entries of a status are kept. There may be any number: this duty writes those of all nodes, and others what they want.
	mostAddresses = 500
	// mostHashes is of how many others it is known whether an address is one of them.
	mostHashes = 20_000
)

// Trim implements slim.Trimmer. Of more entries it keeps what tells them from others.
func (s *service) Trim() {
	s.Status.cut()
	if len(s.Spec.Ports) > maxPorts {
		s.Spec.Ports, s.Spec.portsCut = nil, s.Spec.Type.String() == string(corev1.ServiceTypeLoadBalancer)
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.NodePort != 0 {
			s.Spec.nodePorts = append(s.Spec.nodePorts, servicePort{Port: p.NodePort, Protocol: p.Protocol})
		}
		p.NodePort = 0
	}
	if s.Spec.Type.String() != string(corev1.ServiceTypeLoadBalancer) {
		s.Spec.Ports = nil
	}
}

// servicePort is a port of a Service, or of the nodes.
type servicePort struct {
	Port     int32       `json:"port"`
	NodePort int32       `json:"nodePort"` // 0 once it is trimmed
	Protocol slim.String `json:"protocol"`
}

type serviceSpec struct {
	nodePorts             []servicePort `json:"-"` // at all addresses of nodes
	Ports                 []servicePort `json:"ports"`
	portsCut              bool          `json:"-"` // there are more than maxPorts
	Type                  slim.String   `json:"type"`
	LoadBalancerClass     slim.String   `json:"loadBalancerClass"`
	IPFamilies            []slim.String `json:"ipFamilies"`
	ExternalTrafficPolicy slim.String   `json:"externalTrafficPolicy"`
}

type serviceStatus struct {
	LoadBalancer struct {
		Ingress []ingress `json:"ingress"` // the first of more, if there is a digest
	} `json:"loadBalancer"`
	digest digest   `json:"-"` // of all entries, zero if all are kept
	hashes []uint64 `json:"-"` // of those that are not kept, sorted
	isVast bool     `json:"-"` // there are more than have hashes
}

func (s *serviceStatus) cut() {
	all := s.LoadBalancer.Ingress
	if len(all) <= mostAddresses {
		return
	}
	d := newDigester()
	for i, e := range all {
		if d.add(e.IP.String()); i >= mostAddresses && i < mostAddresses+mostHashes {
			s.hashes = append(s.hashes, hashOf(e.IP.String()))
		}
	}
	slices.Sort(s.hashes)
	s.LoadBalancer.Ingress, s.digest, s.isVast = slim.First(all, mostAddresses), d.sum(), len(all) > mostAddresses+mostHashes
}

// isCut reports whether there are more entries than are kept.
func (s *serviceStatus) isCut() bool { return s.digest != digest{} }

// mayHide reports whether an address may be one of the entries that are not kept.
func (s *serviceStatus) mayHide(ip string) bool {
	_, is := slices.BinarySearch(s.hashes, hashOf(ip))
	return is || s.isVast
}

var seed = maphash.MakeSeed()

// hashOf is another one in each process, so that no one makes addresses with one hash.
func hashOf(ip string) uint64 { return maphash.String(seed, ip) }

type ingress struct {
	IP slim.String `json:"ip"` // "" for a host name
}

// node is what this duty reads of a Node.
type node struct {
	nodeMeta `json:"metadata"`
	Spec     struct {
		Taints []taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		Addresses []slim.NodeAddress `json:"addresses"`
	} `json:"status"`
}

type nodeMeta struct {
	slim.Meta
	Labels            slim.Labels `json:"labels"`
	DeletionTimestamp slim.Time   `json:"deletionTimestamp"`
}

type taint struct {
	Key slim.String `json:"key"`
}

// endpointSlice is the nodes of endpoints of a Service.
type endpointSlice struct {
	sliceMeta `json:"metadata"`
	Endpoints []endpoint `json:"endpoints"`
}

type sliceMeta struct {
	slim.Meta
	Labels slim.Subset[serviceName] `json:"labels"`
}

type endpoint struct {
	NodeName   slim.String `json:"nodeName"`
	Conditions struct {
		Ready *bool `json:"ready"`
	} `json:"conditions"`
}

const (
	selectorAnnotation = "io.cilium.nodeipam/match-node-labels"
	proxyNameLabel     = "service.kubernetes.io/service-proxy-name"
)

// digest tells lists of addresses apart.
type digest [sha256.Size]byte

// digester makes the digest of a list.
type digester struct{ hash.Hash }

func newDigester() digester { return digester{sha256.New()} }

func (d digester) add(ip string) { _, _ = fmt.Fprintf(d, "%s\n", ip) }

func (d digester) sum() (sum digest) {
	d.Sum(sum[:0])
	return sum
}

type (
	nodeSelector struct{}
	proxyName    struct{}
	serviceName  struct{}
)

// Keep implements slim.KeyFilter.
func (nodeSelector) Keep(key string) bool { return key == selectorAnnotation }

// Keep implements slim.KeyFilter.
func (proxyName) Keep(key string) bool { return key == proxyNameLabel }

// Keep implements slim.KeyFilter.
func (serviceName) Keep(key string) bool { return key == discoveryv1.LabelServiceName }

var (
	services       = stream.Core[service, corev1.Service](corev1.SchemeGroupVersion.WithResource("services"))
	nodes          = stream.Core[node, corev1.Node](corev1.SchemeGroupVersion.WithResource("nodes"))
	endpointSlices = stream.Core[endpointSlice, discoveryv1.EndpointSlice](discoveryv1.SchemeGroupVersion.WithResource("endpointslices")).
			MatchingLabels(discoveryv1.LabelServiceName)

	status = schema.GroupResource{Resource: "services/status"}
)

// serviceOf is the Service of an EndpointSlice.
func serviceOf(s *endpointSlice) slim.Key {
	return slim.Key{Namespace: s.Namespace.String(), Name: s.Labels.Get(discoveryv1.LabelServiceName)}
}

// byService finds the EndpointSlices of a Service.
var byService = stream.NewIndex("service", func(s *endpointSlice, add func(slim.Key)) { add(serviceOf(s)) })

// byPort finds the LoadBalancer Services with a port.
var byPort = stream.NewIndex("port", func(s *service, add func(servicePort)) {
	for _, p := range s.Spec.Ports {
		add(p)
	}
})

// byNodePort finds the Services with a port of the nodes.
var byNodePort = stream.NewIndex("node port", func(s *service, add func(servicePort)) {
	for _, p := range s.Spec.nodePorts {
		add(p)
	}
})

// byClass finds the LoadBalancer Services of a class, "" for those without.
var byClass = stream.NewIndex("load balancer class", func(s *service, add func(string)) {
	if s.Spec.Type.String() == string(corev1.ServiceTypeLoadBalancer) {
		add(s.Spec.LoadBalancerClass.String())
	}
})
