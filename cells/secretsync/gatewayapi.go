// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
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
	classKind     = stream.Custom[gatewayClass](gatewayAPI("v1", "gatewayclasses")).OfKind("GatewayClass")
	grantKind     = stream.Custom[referenceGrant](gatewayAPI("v1beta1", "referencegrants")).OfKind("ReferenceGrant")
	tlsPolicyKind = stream.Custom[backendTLSPolicy](gatewayAPI("v1", "backendtlspolicies")).OfKind("BackendTLSPolicy")
	configMaps    = stream.Metadata[configMap](corev1.SchemeGroupVersion.WithResource("configmaps"))
)

// gateway is what this duty reads of a Gateway.
type gateway struct {
	gatewayMeta    `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           gatewaySpec `json:"spec"`
}

type gatewayMeta struct{ slim.Meta }

type gatewaySpec struct {
	GatewayClassName slim.String `json:"gatewayClassName"`
	Listeners        []listener  `json:"listeners"`
}

type listener struct {
	TLS listenerTLS `json:"tls"`
}

type listenerTLS struct {
	CertificateRefs []objectRef `json:"certificateRefs"`
}

// objectRef refers to an object: by default a Secret of the same namespace.
type objectRef struct {
	Group     slim.String  `json:"group"`
	Kind      *slim.String `json:"kind"`
	Namespace slim.String  `json:"namespace"`
	Name      string       `json:"name"`
}

// certificates are the Secrets that listeners refer to.
func (g *gateway) certificates() (all []slim.Key) {
	for _, l := range g.Spec.Listeners {
		for _, ref := range l.TLS.CertificateRefs {
			if ref.Group.String() != "" || ref.Kind != nil && ref.Kind.String() != "Secret" || ref.Name == "" {
				continue
			}
			key := slim.Key{Namespace: ref.Namespace.String(), Name: ref.Name}
			if key.Namespace == "" {
				key.Namespace = g.Namespace.String()
			}
			all = append(all, key)
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

// permits reports whether Gateways of a namespace may refer to a Secret of the grant's.
func (g *referenceGrant) permits(namespace, name string) bool {
	from, to := false, false
	for _, f := range g.Spec.From {
		from = from || f.Group.String() == gatewayGroup && f.Kind.String() == "Gateway" && f.Namespace.String() == namespace
	}
	for _, t := range g.Spec.To {
		to = to || t.Group.String() == "" && t.Kind != nil && t.Kind.String() == "Secret" && (t.Name == "" || t.Name == name)
	}
	return from && to
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
