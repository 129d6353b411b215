// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

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
	noopMetadata // first: a last field of size zero would cost a word
	value        T
}

// item is an object of whatever type.
type item[P any] interface {
	runtime.Object
	meta() *slim.Meta
	pointer() P
}

func (o *object[T]) meta() *slim.Meta { return slim.MetaOf(&o.value) }
func (o *object[T]) pointer() *T      { return &o.value }

func (o *object[T]) DeepCopyObject() runtime.Object { c := *o; return &c }
func (o *object[T]) GetName() string                { return o.meta().Name }
func (o *object[T]) GetNamespace() string           { return o.meta().Namespace.String() }
func (o *object[T]) GetResourceVersion() string     { return o.meta().ResourceVersion.String() }

// unchanged is an object of a list that the stream keeps already.
type unchanged struct {
	noopMetadata
	meta *slim.Meta
}

func (o *unchanged) DeepCopyObject() runtime.Object { c := *o; return &c }
func (o *unchanged) GetName() string                { return o.meta.Name }
func (o *unchanged) GetNamespace() string           { return o.meta.Namespace.String() }
func (o *unchanged) GetResourceVersion() string     { return o.meta.ResourceVersion.String() }

// metadataOnly is an object of which only the name is known: a deleted one, or one that
// could not be read.
type metadataOnly struct {
	noopMetadata
	meta slim.Meta
	err  error // why it could not be read
}

func (o *metadataOnly) DeepCopyObject() runtime.Object { c := *o; return &c }
func (o *metadataOnly) GetName() string                { return o.meta.Name }
func (o *metadataOnly) GetNamespace() string           { return o.meta.Namespace.String() }
func (o *metadataOnly) GetResourceVersion() string     { return o.meta.ResourceVersion.String() }

// bookmark is the revision that the server has reached, for the Reflector.
type bookmark struct {
	noopMetadata
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

// noopMetadata has size zero and the methods that client-go requires of every object
// and the Reflector does not use.
type noopMetadata struct{}

var _ metav1.Object = noopMetadata{}

func (noopMetadata) GetObjectKind() schema.ObjectKind              { return schema.EmptyObjectKind }
func (noopMetadata) GetNamespace() string                          { return "" }
func (noopMetadata) SetNamespace(string)                           {}
func (noopMetadata) GetName() string                               { return "" }
func (noopMetadata) SetName(string)                                {}
func (noopMetadata) GetGenerateName() string                       { return "" }
func (noopMetadata) SetGenerateName(string)                        {}
func (noopMetadata) GetUID() types.UID                             { return "" }
func (noopMetadata) SetUID(types.UID)                              {}
func (noopMetadata) GetResourceVersion() string                    { return "" }
func (noopMetadata) SetResourceVersion(string)                     {}
func (noopMetadata) GetGeneration() int64                          { return 0 }
func (noopMetadata) SetGeneration(int64)                           {}
func (noopMetadata) GetSelfLink() string                           { return "" }
func (noopMetadata) SetSelfLink(string)                            {}
func (noopMetadata) GetCreationTimestamp() metav1.Time             { return metav1.Time{} }
func (noopMetadata) SetCreationTimestamp(metav1.Time)              {}
func (noopMetadata) GetDeletionTimestamp() *metav1.Time            { return nil }
func (noopMetadata) SetDeletionTimestamp(*metav1.Time)             {}
func (noopMetadata) GetDeletionGracePeriodSeconds() *int64         { return nil }
func (noopMetadata) SetDeletionGracePeriodSeconds(*int64)          {}
func (noopMetadata) GetLabels() map[string]string                  { return nil }
func (noopMetadata) SetLabels(map[string]string)                   {}
func (noopMetadata) GetAnnotations() map[string]string             { return nil }
func (noopMetadata) SetAnnotations(map[string]string)              {}
func (noopMetadata) GetFinalizers() []string                       { return nil }
func (noopMetadata) SetFinalizers([]string)                        {}
func (noopMetadata) GetOwnerReferences() []metav1.OwnerReference   { return nil }
func (noopMetadata) SetOwnerReferences([]metav1.OwnerReference)    {}
func (noopMetadata) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }
func (noopMetadata) SetManagedFields([]metav1.ManagedFieldsEntry)  {}
