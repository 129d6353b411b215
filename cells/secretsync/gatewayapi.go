// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

const (
	gatewayGroup = "gateway.networking.k8s.io"
	// controllerName is that of our GatewayClasses.
	controllerName = "io.cilium/gateway-controller"
)

func gatewayAPI(version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: gatewayGroup, Version: version, Resource: resource}
}

var (
	gatewayKind   = stream.Custom[gateway](gatewayAPI("v1", "gateways")).OfKind("Gateway")
	setKind       = stream.Custom[listenerSet](gatewayAPI("v1", "listenersets")).OfKind("ListenerSet")
	classKind     = stream.Custom[gatewayClass](gatewayAPI("v1", "gatewayclasses")).OfKind("GatewayClass")
	grantKind     = stream.Custom[referenceGrant](gatewayAPI("v1", "referencegrants")).OfKind("ReferenceGrant")
	tlsPolicyKind = stream.Custom[backendTLSPolicy](gatewayAPI("v1", "backendtlspolicies")).OfKind("BackendTLSPolicy")
	configMaps    = stream.Metadata[configMap](corev1.SchemeGroupVersion.WithResource("configmaps"))
)

// gateway is what this duty reads of a Gateway.
type gateway struct {
	gatewayMeta    `json:"metadata"`
	slim.Undecoded `json:"-"`
	slim.Cut       `json:"-"`
	Spec           gatewaySpec `json:"spec"`
}

// CutDown implements slim.Cutter.
func (g *gateway) CutDown() { g.Spec.Listeners = nil }

type gatewayMeta struct{ slim.Meta }

type gatewaySpec struct {
	GatewayClassName slim.String      `json:"gatewayClassName"`
	Listeners        []listener       `json:"listeners"`
	AllowedListeners allowedListeners `json:"allowedListeners"`
}

type allowedListeners struct {
	Namespaces listenerNamespaces `json:"namespaces"`
}

type listenerNamespaces struct {
	From slim.String `json:"from"`
}

// mayAllow reports whether a Gateway may allow ListenerSets of a namespace. What its selector selects is not looked at: the
// certificates of a ListenerSet that is not selected are copied, too.
func (g *gateway) mayAllow(namespace string) bool {
	switch g.Spec.AllowedListeners.Namespaces.From.String() {
	case "All", "Selector":
		return true
	case "Same":
		return g.Namespace.String() == namespace
	}
	return false
}

// listenerSet is what this duty reads of a ListenerSet.
type listenerSet struct {
	gatewayMeta    `json:"metadata"`
	slim.Undecoded `json:"-"`
	slim.Cut       `json:"-"`
	Spec           listenerSetSpec `json:"spec"`
}

// CutDown implements slim.Cutter.
func (s *listenerSet) CutDown() { s.Spec.Listeners = nil }

type listenerSetSpec struct {
	ParentRef objectRef  `json:"parentRef"`
	Listeners []listener `json:"listeners"`
}

// gateway is the key of the Gateway that a ListenerSet refers to, the zero Key if it refers to something else.
func (s *listenerSet) gateway() slim.Key {
	ref := s.Spec.ParentRef
	if group := ref.Group.String(); group != "" && group != gatewayGroup || ref.Kind != nil && ref.Kind.String() != "Gateway" {
		return slim.Key{}
	}
	return ref.keyIn(s.Namespace.String())
}

type listener struct {
	TLS listenerTLS `json:"tls"`
}

type listenerTLS struct {
	CertificateRefs []objectRef `json:"certificateRefs"`
}

// objectRef refers to an object, by default of the same namespace.
type objectRef struct {
	Group     slim.String  `json:"group"`
	Kind      *slim.String `json:"kind"`
	Namespace slim.String  `json:"namespace"`
	Name      string       `json:"name"`
}

// keyIn is the key of what an object of a namespace refers to.
func (r objectRef) keyIn(namespace string) slim.Key {
	if other := r.Namespace.String(); other != "" {
		namespace = other
	}
	return slim.Key{Namespace: namespace, Name: r.Name}
}

// certificates are the Secrets that listeners of a namespace refer to.
func certificates(listeners []listener, namespace string) (all []slim.Key) {
	for _, l := range listeners {
		for _, ref := range l.TLS.CertificateRefs {
			if ref.Group.String() != "" || ref.Kind != nil && ref.Kind.String() != "Secret" || ref.Name == "" {
				continue
			}
			all = append(all, ref.keyIn(namespace))
		}
	}
	return all
}

// gatewayClass is what this duty reads of a GatewayClass.
type gatewayClass struct {
	gatewayMeta    `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           gatewayClassSpec `json:"spec"`
}

type gatewayClassSpec struct {
	ControllerName slim.String `json:"controllerName"`
}

// referenceGrant is what this duty reads of a ReferenceGrant.
type referenceGrant struct {
	gatewayMeta    `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           grantSpec `json:"spec"`
}

type grantSpec struct {
	From []grantFrom `json:"from"`
	To   []objectRef `json:"to"`
}

type grantFrom struct {
	Group     slim.String `json:"group"`
	Kind      slim.String `json:"kind"`
	Namespace slim.String `json:"namespace"`
}

// isFor reports whether objects of a kind of the Gateway API in a namespace have the grant.
func (g *referenceGrant) isFor(kind, namespace string) bool {
	return slices.ContainsFunc(g.Spec.From, func(f grantFrom) bool {
		return f.Group.String() == gatewayGroup && f.Kind.String() == kind && f.Namespace.String() == namespace
	})
}

// add adds the names of the Secrets to which those objects may refer. It reports whether these are all of the namespace.
func (g *referenceGrant) add(names map[string]bool) (all bool) {
	for _, t := range g.Spec.To {
		if t.Group.String() != "" || t.Kind == nil || t.Kind.String() != "Secret" {
			continue
		}
		if names[t.Name] = true; t.Name == "" {
			all = true
		}
	}
	return all
}

// backendTLSPolicy is what this duty reads of a BackendTLSPolicy.
type backendTLSPolicy struct {
	gatewayMeta    `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           tlsPolicySpec `json:"spec"`
}

type tlsPolicySpec struct {
	Validation tlsValidation `json:"validation"`
}

type tlsValidation struct {
	CACertificateRefs []objectRef `json:"caCertificateRefs"`
}

// configMap is what is kept of each ConfigMap: that it exists.
type configMap struct {
	gatewayMeta `json:"metadata"`
}
