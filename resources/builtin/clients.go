// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package builtin

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// Scheme has the types that operators read and write by type: those of a few API groups, in the version that
// API servers store. An operator that needs others adds them before its start.
var Scheme = newScheme()

var (
	codecs     = serializer.NewCodecFactory(Scheme)
	parameters = runtime.NewParameterCodec(Scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, authorizationv1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}

// NewClient returns a client for the objects of a resource in a namespace, "" for those that have none. Its requests are
// those of client-go's clientset.
//
//	leases, err := builtin.NewClient[*coordinationv1.Lease](config, coordinationv1.SchemeGroupVersion.WithResource("leases"), namespace)
func NewClient[T Object[V], V any](config *rest.Config, resource schema.GroupVersionResource, namespace string) (*gentype.Client[T], error) {
	api, err := newREST(config, resource.GroupVersion())
	if err != nil {
		return nil, err
	}
	return client[T](api, resource.Resource, namespace, gentype.PrefersProtobuf[T]()), nil
}

// Object is a pointer to a type of [Scheme].
type Object[V any] interface {
	*V
	runtime.Object
	metav1.Object
}

func client[T Object[V], V any](api rest.Interface, resource, namespace string, options ...gentype.Option[T]) *gentype.Client[T] {
	return gentype.NewClient(resource, api, parameters, namespace, func() T { return new(V) }, options...)
}

func newREST(config *rest.Config, version schema.GroupVersion) (*rest.RESTClient, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &version, "/apis"
	if version.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(Scheme, codecs).WithoutConversion()
	return rest.RESTClientFor(c)
}

// Events writes Events in any namespace.
type Events struct{ api rest.Interface }

// NewEvents returns a client for Events.
func NewEvents(config *rest.Config) (*Events, error) {
	api, err := newREST(config, corev1.SchemeGroupVersion)
	return &Events{api}, err
}

// In writes the Events of a namespace.
func (e *Events) In(namespace string) *gentype.Client[*corev1.Event] {
	return client[*corev1.Event](e.api, "events", namespace)
}
