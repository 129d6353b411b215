// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// object is a kept object on its way through client-go's Reflector: the slim
// value and nothing else, so that one allocation holds it from the wire to its
// end.
type object[T any] struct {
	foreign // first: a last field of size zero would cost a word
	value   T
}

func (o *object[T]) meta() *slim.Meta { return slim.MetaOf(&o.value) }

func (o *object[T]) DeepCopyObject() runtime.Object { c := *o; return &c }
func (o *object[T]) GetName() string                { return o.meta().Name }
func (o *object[T]) GetNamespace() string           { return o.meta().Namespace.String() }
func (o *object[T]) GetResourceVersion() string     { return o.meta().ResourceVersion.String() }

// unchanged is an object of a list that the stream keeps already.
type unchanged struct {
	foreign
	meta *slim.Meta
}

func (o *unchanged) DeepCopyObject() runtime.Object { c := *o; return &c }
func (o *unchanged) GetName() string                { return o.meta.Name }
func (o *unchanged) GetNamespace() string           { return o.meta.Namespace.String() }
func (o *unchanged) GetResourceVersion() string     { return o.meta.ResourceVersion.String() }

// named is an object of which only the name is known: a deleted one, or one that
// could not be read.
type named struct {
	foreign
	meta slim.Meta
	err  error // why it could not be read
}

func (o *named) DeepCopyObject() runtime.Object { c := *o; return &c }
func (o *named) GetName() string                { return o.meta.Name }
func (o *named) GetNamespace() string           { return o.meta.Namespace.String() }
func (o *named) GetResourceVersion() string     { return o.meta.ResourceVersion.String() }

// bookmark tells the Reflector how far the server is.
type bookmark struct {
	foreign
	revision string
	end      bool // of the initial events
}

func (o *bookmark) DeepCopyObject() runtime.Object { c := *o; return &c }
func (o *bookmark) GetResourceVersion() string     { return o.revision }
func (o *bookmark) GetAnnotations() map[string]string {
	if o.end {
		return map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return nil
}

// foreign has size zero and the methods that client-go wants of every object
// and does not use on the way through the Reflector.
type foreign struct{}

var _ metav1.Object = foreign{}

func (foreign) GetObjectKind() schema.ObjectKind              { return schema.EmptyObjectKind }
func (foreign) GetNamespace() string                          { return "" }
func (foreign) SetNamespace(string)                           {}
func (foreign) GetName() string                               { return "" }
func (foreign) SetName(string)                                {}
func (foreign) GetGenerateName() string                       { return "" }
func (foreign) SetGenerateName(string)                        {}
func (foreign) GetUID() types.UID                             { return "" }
func (foreign) SetUID(types.UID)                              {}
func (foreign) GetResourceVersion() string                    { return "" }
func (foreign) SetResourceVersion(string)                     {}
func (foreign) GetGeneration() int64                          { return 0 }
func (foreign) SetGeneration(int64)                           {}
func (foreign) GetSelfLink() string                           { return "" }
func (foreign) SetSelfLink(string)                            {}
func (foreign) GetCreationTimestamp() metav1.Time             { return metav1.Time{} }
func (foreign) SetCreationTimestamp(metav1.Time)              {}
func (foreign) GetDeletionTimestamp() *metav1.Time            { return nil }
func (foreign) SetDeletionTimestamp(*metav1.Time)             {}
func (foreign) GetDeletionGracePeriodSeconds() *int64         { return nil }
func (foreign) SetDeletionGracePeriodSeconds(*int64)          {}
func (foreign) GetLabels() map[string]string                  { return nil }
func (foreign) SetLabels(map[string]string)                   {}
func (foreign) GetAnnotations() map[string]string             { return nil }
func (foreign) SetAnnotations(map[string]string)              {}
func (foreign) GetFinalizers() []string                       { return nil }
func (foreign) SetFinalizers([]string)                        {}
func (foreign) GetOwnerReferences() []metav1.OwnerReference   { return nil }
func (foreign) SetOwnerReferences([]metav1.OwnerReference)    {}
func (foreign) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }
func (foreign) SetManagedFields([]metav1.ManagedFieldsEntry)  {}
