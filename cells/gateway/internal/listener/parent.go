// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package listener

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// KindSecret is the kind of what certificates are in.
const KindSecret = "Secret"

// Parent is what has listeners: a Gateway or a ListenerSet.
type Parent struct {
	*route.ObjectMeta
	Kind      string
	Listeners []gatewayv1.Listener
}

// ID is the key of a Gateway or a ListenerSet among the parents of routes.
func (p Parent) ID() slim.Key {
	if p.Kind == route.KindGateway {
		return p.Key()
	}
	return route.KeyOf(p.Kind, p.Key())
}

// AllowsRoutes reports whether a listener allows routes of a namespace.
func (p Parent) AllowsRoutes(namespace string, lookup route.Lookup) bool {
	return slices.ContainsFunc(p.Listeners, func(l gatewayv1.Listener) bool {
		return allowedBy(l).Allow(p.Namespace.String(), namespace, lookup)
	})
}

// Secrets are the secrets that the listeners refer to.
func (p Parent) Secrets() (keys []slim.Key) {
	for _, l := range p.Listeners {
		if l.TLS == nil {
			continue
		}
		for _, ref := range l.TLS.CertificateRefs {
			if key, ok := secretOf(p.Namespace.String(), ref); ok {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// secretOf is the Secret that a Gateway or a ListenerSet refers to. ok is false for a reference to something else.
func secretOf(namespace string, ref gatewayv1.SecretObjectReference) (key slim.Key, ok bool) {
	if ref.Group != nil && *ref.Group != "" || ref.Kind != nil && *ref.Kind != KindSecret {
		return key, false
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	return slim.Key{Namespace: namespace, Name: string(ref.Name)}, true
}
