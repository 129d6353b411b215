// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// ingress is what this duty reads of an Ingress.
type ingress struct {
	ingressMeta `json:"metadata"`
	slim.Cut    `json:"-"`
	Spec        networkingv1.IngressSpec   `json:"spec"`
	Status      networkingv1.IngressStatus `json:"status"`
}

type ingressMeta struct {
	slim.Meta
	Generation        int64                    `json:"generation"`
	Labels            slim.Labels              `json:"labels"`
	Annotations       slim.Subset[annotations] `json:"annotations"`
	CreationTimestamp slim.Time                `json:"creationTimestamp"`
	DeletionTimestamp slim.Time                `json:"deletionTimestamp"`
}

// annotations are all but the one with a copy of the object.
type annotations struct{}

// Keep implements slim.KeyFilter.
func (annotations) Keep(key string) bool { return key != corev1.LastAppliedConfigAnnotation }

// ingressClass is what this duty reads of an IngressClass.
type ingressClass struct {
	classMeta `json:"metadata"`
}

type classMeta struct {
	slim.Meta
	Annotations slim.Subset[isDefault] `json:"annotations"`
}

type isDefault struct{}

// Keep implements slim.KeyFilter.
func (isDefault) Keep(key string) bool { return key == networkingv1.AnnotationIsDefaultIngressClass }

// service is what this duty reads of a Service: whether it exists, its ports, whose it is, and its addresses.
type service struct {
	serviceMeta `json:"metadata"`
	slim.Cut    `json:"-"`
	Spec        serviceSpec          `json:"spec"`
	Status      corev1.ServiceStatus `json:"status"`
}

// CutDown implements slim.Cutter.
func (s *service) CutDown() {
	s.Spec = serviceSpec{}
	slim.CutStatus(&s.Status)
}

// mostAddresses is how many addresses of a Service are read. Others may write any number.
const mostAddresses = 500

// Trim implements slim.Trimmer: it sorts the ports, since each path asks for one of them, and both can be many.
func (s *service) Trim() {
	s.Status.LoadBalancer.Ingress = slim.First(s.Status.LoadBalancer.Ingress, mostAddresses)
	slices.SortStableFunc(s.Spec.Ports, func(a, b servicePort) int { return cmp.Compare(a.Port, b.Port) })
	s.Spec.names = make([]slim.String, len(s.Spec.Ports))
	for i, p := range s.Spec.Ports {
		s.Spec.names[i] = p.Name
	}
	slices.SortFunc(s.Spec.names, func(a, b slim.String) int { return strings.Compare(a.String(), b.String()) })
}

type serviceSpec struct {
	Ports []servicePort `json:"ports"` // by number
	names []slim.String `json:"-"`     // of the ports, sorted
}

// servicePort is a port of a Service.
type servicePort struct {
	Name slim.String `json:"name"`
	Port int32       `json:"port"`
}

// has reports whether there is a port of this number or name.
func (s *serviceSpec) has(port string) bool {
	if number, err := strconv.ParseInt(port, 10, 32); err == nil && strconv.FormatInt(number, 10) == port {
		if _, is := slices.BinarySearchFunc(s.Ports, int32(number), func(p servicePort, n int32) int { return cmp.Compare(p.Port, n) }); is {
			return true
		}
	}
	_, is := slices.BinarySearchFunc(s.names, port, func(name slim.String, port string) int { return strings.Compare(name.String(), port) })
	return is
}

type serviceMeta struct {
	slim.Meta
	Labels     slim.Subset[ingressLabels] `json:"labels"`
	Controller slim.Owner                 `json:"ownerReferences"`
}

// duty tells the streams of placeholders of Ingresses from those of others.
type duty struct{}

// ingressLabel marks the Services of Ingresses and their placeholders.
const ingressLabel = "cilium.io/ingress"

type ingressLabels struct{}

// Keep implements slim.KeyFilter.
func (ingressLabels) Keep(key string) bool { return key == ingressLabel }

// class is the name of the IngressClass.
const class = "cilium"

// classAnnotation is the older place of the class of an Ingress.
const classAnnotation = "kubernetes.io/ingress.class"

var (
	ingresses = stream.Core[ingress, networkingv1.Ingress](networkingv1.SchemeGroupVersion.WithResource("ingresses"))
	classes   = stream.Core[ingressClass, networkingv1.IngressClass](networkingv1.SchemeGroupVersion.WithResource("ingressclasses")).
			MatchingFields("metadata.name=" + class)
	services = stream.Core[service, corev1.Service](corev1.SchemeGroupVersion.WithResource("services"))
	// What Services of Ingresses have in place of backends.
	ownedSlices    = envoyres.Slices[duty](ingressLabel)
	ownedEndpoints = envoyres.EndpointsWith[duty](ingressLabel)
)

// byBackend finds the Ingresses that refer to a Service.
var byBackend = stream.NewIndex("backend", func(i *ingress, add func(slim.Key)) {
	seen := map[string]bool{}
	for b := range backendsOf(i) {
		if b.Service != nil && !seen[b.Service.Name] {
			seen[b.Service.Name] = true
			add(slim.Key{Namespace: i.Namespace.String(), Name: b.Service.Name})
		}
	}
})

// backendsOf are the backends of an Ingress.
func backendsOf(i *ingress) func(yield func(networkingv1.IngressBackend) bool) {
	return func(yield func(networkingv1.IngressBackend) bool) {
		if b := i.Spec.DefaultBackend; b != nil && !yield(*b) {
			return
		}
		for _, rule := range i.Spec.Rules {
			if rule.HTTP == nil {
				continue
			}
			for _, p := range rule.HTTP.Paths {
				if !yield(p.Backend) {
					return
				}
			}
		}
	}
}

// isManaged reports whether an Ingress is of our class. byDefault says that Ingresses without a class are.
func isManaged(i *ingress, byDefault bool) bool {
	name, annotated := i.Annotations.Lookup(classAnnotation)
	if !annotated && i.Spec.IngressClassName != nil {
		name = *i.Spec.IngressClassName
	}
	return name == class || name == "" && byDefault
}

// isDefaultClass reports whether a class is that of Ingresses without one.
func isDefaultClass(c *ingressClass) bool {
	is, err := strconv.ParseBool(c.Annotations.Get(networkingv1.AnnotationIsDefaultIngressClass))
	return err == nil && is
}

// inherited are those of the labels or annotations whose keys have one of the prefixes.
func inherited(all slim.Labels, prefixes []string) map[string]string {
	found := map[string]string{}
	for key, value := range all.All() {
		for _, p := range prefixes {
			if p != "" && strings.HasPrefix(key, p) {
				found[key] = value
			}
		}
	}
	return found
}
