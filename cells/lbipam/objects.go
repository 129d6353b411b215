// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var (
	serviceKind = stream.Core[serviceObject, corev1.Service](corev1.SchemeGroupVersion.WithResource("services"))
	poolKind    = stream.Custom[poolObject](v2.CiliumLoadBalancerIPPoolResource).OfKind("CiliumLoadBalancerIPPool")

	serviceStatusResource = schema.GroupResource{Resource: "services/status"}
	poolStatusResource    = schema.GroupResource{Group: v2.SchemeGroupVersion.Group, Resource: "ciliumloadbalancerippools/status"}
)

// selectServices are the Services that no other proxy serves.
func selectServices(k stream.Kind[serviceObject], c cluster.Config) stream.Kind[serviceObject] {
	return k.MatchingLabels(c.ServiceSelector())
}

// serviceObject is what is kept of a Service.
type serviceObject struct {
	serviceMeta `json:"metadata"`
	Spec        serviceSpec   `json:"spec"`
	Status      serviceStatus `json:"status"`
}

const (
	// mostRequested is how many addresses of a family a Service may have that it names, whatever the option allows.
	mostRequested = 500
	// mostEntries is how many addresses of a status are read, so that all are that a Service may have. Others may write any number.
	mostEntries = 2 * mostRequested
	// mostLeft is how many addresses the statuses of the Services of one namespace keep from others at a start, beyond what those Services may have: any
	// writer of a status may put some there before a leader begins.
	mostLeft = 64
	// mostConditions is how many conditions are.
	mostConditions = 500
)

// trim leaves the first addresses, and of conditions ours. The last entry stands for all others then, so that the status is written.
func (s *serviceStatus) trim() {
	if all := &s.LoadBalancer.Ingress; len(*all) > mostEntries {
		*all = append(slim.First(*all, mostEntries), ingress{isMore: true})
	}
	if len(s.Conditions) > mostConditions {
		var ours []condition
		if i := slices.IndexFunc(s.Conditions, isSatisfied); i >= 0 {
			ours = append(ours, s.Conditions[i])
		}
		s.Conditions = append(ours, condition{isMore: true})
	}
}

// Trim implements slim.Trimmer: ports matter to those who share an address.
func (o *serviceObject) Trim() {
	o.Status.trim()
	if key, _ := annotation(o, sharingKeyAnnotation, sharingKeyAlias); key == "" {
		o.Spec.Ports = nil
	}
	if len(o.Spec.Ports) > maxPorts {
		o.Spec.Ports, o.Spec.portsCut = nil, true
	}
}

// maxPorts is how many ports a Service may have that shares an address.
const maxPorts = 5000

type serviceMeta struct {
	slim.Meta
	Generation        int64                    `json:"generation"`
	Labels            slim.Labels              `json:"labels"`
	Annotations       slim.Subset[annotations] `json:"annotations"`
	CreationTimestamp slim.Time                `json:"creationTimestamp"`
}

type serviceSpec struct {
	Type                  slim.String   `json:"type"`
	LoadBalancerClass     slim.String   `json:"loadBalancerClass"`
	LoadBalancerIP        string        `json:"loadBalancerIP"`
	IPFamilies            []slim.String `json:"ipFamilies"`
	IPFamilyPolicy        slim.String   `json:"ipFamilyPolicy"`
	ExternalTrafficPolicy slim.String   `json:"externalTrafficPolicy"`
	Selector              slim.Labels   `json:"selector"`
	Ports                 []servicePort `json:"ports"`
	portsCut              bool          `json:"-"` // there are more than maxPorts
}

type servicePort struct {
	Port     int32       `json:"port"`
	Protocol slim.String `json:"protocol"` // TCP where there is none
}

type serviceStatus struct {
	LoadBalancer loadBalancerStatus `json:"loadBalancer"`
	Conditions   []condition        `json:"conditions"`
}

type loadBalancerStatus struct {
	Ingress []ingress `json:"ingress"`
}

// ingress is an entry of status.loadBalancer.ingress. Other fields of it are never written.
type ingress struct {
	IP       string `json:"ip"`
	Hostname string `json:"hostname"`
	isMore   bool   `json:"-"` // it stands for those that were not read
}

// condition is a metav1.Condition without its time.
type condition struct {
	Type               slim.String `json:"type"`
	Status             slim.String `json:"status"`
	Reason             slim.String `json:"reason"`
	Message            string      `json:"message"`
	ObservedGeneration int64       `json:"observedGeneration"`
	isMore             bool        `json:"-"` // it stands for those that were not read
}

// The annotations of Services, each with its older name.
const (
	requestAnnotation        = "lbipam.cilium.io/ips"
	requestAlias             = "io.cilium/lb-ipam-ips"
	sharingKeyAnnotation     = "lbipam.cilium.io/sharing-key"
	sharingKeyAlias          = "io.cilium/lb-ipam-sharing-key"
	crossNamespaceAnnotation = "lbipam.cilium.io/sharing-cross-namespace"
	crossNamespaceAlias      = "io.cilium/lb-ipam-sharing-cross-namespace"
)

var knownAnnotations = []string{requestAnnotation, sharingKeyAnnotation, crossNamespaceAnnotation, requestAlias, sharingKeyAlias, crossNamespaceAlias}

// annotations are those of this duty, and others that begin as they do: a person may mean one of these.
type annotations struct{}

// Keep implements slim.KeyFilter.
func (annotations) Keep(key string) bool {
	return strings.HasPrefix(key, "lbipam.cilium.io/") || strings.HasPrefix(key, "io.cilium/lb-ipam")
}

// poolObject is what is kept of a CiliumLoadBalancerIPPool.
type poolObject struct {
	poolMeta       `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           poolSpec    `json:"spec"`
	Status         *poolStatus `json:"status"`
}

type poolMeta struct {
	slim.Meta
	Generation        int64     `json:"generation"`
	CreationTimestamp slim.Time `json:"creationTimestamp"`
}

type poolSpec struct {
	Blocks            []block           `json:"blocks"`
	AllowFirstLastIPs slim.String       `json:"allowFirstLastIPs"`
	ServiceSelector   *v2.LabelSelector `json:"serviceSelector"`
	Disabled          bool              `json:"disabled"`
}

type block struct {
	CIDR  string `json:"cidr"`
	Start string `json:"start"`
	Stop  string `json:"stop"`
}

type poolStatus struct {
	Conditions []condition `json:"conditions"`
}

// conditions are those of the status, if there is one.
func (o *poolObject) conditions() []condition {
	if o.Status == nil {
		return nil
	}
	return o.Status.Conditions
}
