// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/stream/slim"
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
	custom    bool // defined by a CustomResourceDefinition
	codec     func() (*slim.Codec[T], error)
	namespace string
	labels    string
	fields    string
}

// codec is what a stream needs of slim.Codec.
type codec[T any] = *slim.Codec[T]

// Core declares objects of a type that the API server has built in, whose Go
// type is Full.
func Core[T, Full any](gvr schema.GroupVersionResource) Kind[T] {
	return Kind[T]{gvr: gvr, codec: sync.OnceValues(slim.Protobuf[T, Full])}
}

// Custom declares custom resources. A stream of them waits for the
// CustomResourceDefinition.
func Custom[T any](gvr schema.GroupVersionResource) Kind[T] {
	return Kind[T]{gvr: gvr, custom: true, codec: sync.OnceValues(slim.JSON[T])}
}

// Metadata declares any kind of object, custom or not, of which only metadata
// is kept; the server does not send the rest.
func Metadata[T any](gvr schema.GroupVersionResource) Kind[T] {
	return Kind[T]{gvr: gvr, custom: true, codec: sync.OnceValues(slim.Metadata[T])}
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

// String returns the resource and its group.
func (k Kind[T]) String() string { return k.gvr.GroupResource().String() }

// Check returns what is wrong with the declaration: T does not fit the full
// type, or a selector cannot be parsed.
func (k Kind[T]) Check() error {
	_, err := k.compile()
	return err
}

func (k Kind[T]) compile() (codec[T], error) {
	if k.codec == nil {
		return nil, errors.New("stream kind is empty: make it with Core, Custom or Metadata")
	}
	codec, err := k.codec()
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
