// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/builtin"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// Kind declares what a stream carries: which objects of the API server, and
// which of their fields, as the slim type T. It is an immutable value; a stream
// of one's own begins with one:
//
//	type Pod struct {
//		slim.Meta `json:"metadata"`
//		Spec      struct {
//			NodeName slim.String `json:"nodeName"`
//		} `json:"spec"`
//	}
//
//	var pending = stream.Core[Pod, corev1.Pod](corev1.SchemeGroupVersion.WithResource("pods")).
//		MatchingFields("status.phase=Pending")
type Kind[T any] struct {
	gvr       schema.GroupVersionResource
	custom    bool   // defined by a CustomResourceDefinition
	name      string // ConfigMap, "" if it is not known
	kind      string // the same of custom resources, for people alone
	codec     func() (*slim.Codec[T], error)
	fits      func() error // whether it is declared as what its resource is
	namespace string
	labels    string
	fields    string
}

// Core declares objects of a type that the API server has built in, whose Go
// type is Full.
func Core[T, Full any](gvr schema.GroupVersionResource) Kind[T] {
	return Kind[T]{
		gvr: gvr, name: reflect.TypeFor[Full]().Name(), codec: sync.OnceValues(slim.Protobuf[T, Full]),
		fits: func() error { return isTypeOf(new(Full), gvr) },
	}
}

// Custom declares custom resources. A stream of them waits for the
// CustomResourceDefinition. A kind that has several versions is declared in its
// newest: where the definition does not serve that one, it is read in the next.
func Custom[T any](gvr schema.GroupVersionResource) Kind[T] {
	return Kind[T]{gvr: gvr, custom: true, codec: sync.OnceValues(slim.JSON[T]), fits: func() error { return isCustom(gvr) }}
}

// Metadata declares any kind of object, custom or not, of which only metadata
// is kept; the server does not send the rest.
func Metadata[T any](gvr schema.GroupVersionResource) Kind[T] {
	// Built-in resources, and definitions, have no definition: one that is missing is no proof that they do not exist.
	custom := gvr.Group != apiextensions && isCustom(gvr) == nil
	return Kind[T]{gvr: gvr, custom: custom, codec: sync.OnceValues(slim.Metadata[T])}
}

// isTypeOf returns why full is not the type of a resource that the API server has built in.
func isTypeOf(full any, gvr schema.GroupVersionResource) error {
	name := reflect.TypeOf(full).Elem()
	switch resources := builtin.ResourcesOf(full); {
	case len(resources) == 0:
		return fmt.Errorf("%s is no type of the API server", name)
	case !slices.Contains(resources, gvr):
		return fmt.Errorf("%s is the type of %s", name, resources[0].GroupResource())
	}
	return nil
}

// isCustom returns an error if a resource is built in, not defined by a CRD.
func isCustom(gvr schema.GroupVersionResource) error {
	if builtin.Has(gvr) {
		return fmt.Errorf("%s are built in: declare them with stream.Core", gvr.Resource)
	}
	if versions := api.Versions(gvr.GroupResource()); len(versions) > 0 && versions[0] != gvr.Version {
		return fmt.Errorf("the newest version of %s is %s: declare that, for %s may drop fields", gvr.Resource, versions[0], gvr.Version)
	}
	return nil
}

// InNamespace restricts the kind to one namespace.
func (k Kind[T]) InNamespace(namespace string) Kind[T] {
	k.namespace = namespace
	return k
}

// MatchingLabels restricts the kind to the objects that the server's label
// selector matches.
func (k Kind[T]) MatchingLabels(selector string) Kind[T] {
	k.labels = selector
	return k
}

// MatchingFields restricts the kind to the objects that the server's field
// selector matches.
func (k Kind[T]) MatchingFields(selector string) Kind[T] {
	k.fields = selector
	return k
}

// OfKind names the kind of custom resources, such as CiliumNode, for the causes of writes.
func (k Kind[T]) OfKind(name string) Kind[T] {
	k.kind = name
	return k
}

// Name is the name of the kind, such as Node. Where it is not known it is the resource.
func (k Kind[T]) Name() string { return cmp.Or(k.name, k.kind, k.gvr.Resource) }

// Resource is the group, version and plural of the kind.
func (k Kind[T]) Resource() schema.GroupVersionResource { return k.gvr }

// Permissions are what a module needs that watches the kind.
func (k Kind[T]) Permissions() cell.Cell {
	return k8s.RBAC(k8s.Allow("list,watch", k.gvr.GroupResource()))
}

// String returns the resource and its group.
func (k Kind[T]) String() string { return k.gvr.GroupResource().String() }

// Check returns what is wrong with the declaration: T does not fit the full
// type, or a selector cannot be parsed.
func (k Kind[T]) Check() error {
	_, err := k.compile()
	return err
}

func (k Kind[T]) compile() (*slim.Codec[T], error) {
	if k.codec == nil {
		return nil, errors.New("stream kind is empty: make it with Core, Custom or Metadata")
	}
	codec, err := k.codec()
	if k.fits != nil {
		err = errors.Join(k.fits(), err)
	}
	if _, labelsErr := labels.Parse(k.labels); labelsErr != nil {
		err = errors.Join(err, fmt.Errorf("label selector %q: %w", k.labels, labelsErr))
	}
	if _, fieldsErr := fields.ParseSelector(k.fields); fieldsErr != nil {
		err = errors.Join(err, fmt.Errorf("field selector %q: %w", k.fields, fieldsErr))
	}
	if err != nil {
		return nil, fmt.Errorf("stream kind %s: %w", k, err)
	}
	return codec, nil
}

// The kinds of core objects that duties share. A duty that needs other fields
// declares its own.
var (
	Pods           = Core[slim.Pod, corev1.Pod](corev1.SchemeGroupVersion.WithResource("pods"))
	Namespaces     = Core[slim.Namespace, corev1.Namespace](corev1.SchemeGroupVersion.WithResource("namespaces"))
	Nodes          = Core[slim.Node, corev1.Node](corev1.SchemeGroupVersion.WithResource("nodes"))
	Services       = Core[slim.Service, corev1.Service](corev1.SchemeGroupVersion.WithResource("services"))
	EndpointSlices = Core[slim.EndpointSlice, discoveryv1.EndpointSlice](discoveryv1.SchemeGroupVersion.WithResource("endpointslices"))
)
