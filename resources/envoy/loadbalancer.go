// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// OwnedObject is an object of a load balancer, which is created, or updated if it is its owner's.
type OwnedObject[T any] struct {
	Resource schema.GroupVersionResource
	Kind     string
	Key      slim.Key
	Owner    *metav1.OwnerReference
	// Label marks objects that are the owner's without a controller. Its value is Value, or any if that is empty.
	Label, Value string
	// Edit sets what is desired. isNew says that the object is to be created.
	Edit func(to *T, isNew bool)
	// Fits, if set, reports whether an object can be edited to be as desired. One that cannot is treated as another's.
	Fits func(has *T) bool
	// Desired is all that Edit depends on. With Last, an object that was as desired is not read again until it or Desired has changed.
	Desired any
	Last    *Checked
}

// Checked is an object that was as desired. The zero value is none.
type Checked struct {
	revision string
	desired  any
}

// Desired is what the object was checked for, nil if it was not.
func (c *Checked) Desired() any { return c.desired }

// Cached is the metadata of an object that a cache has, nil for none.
func Cached[T any](in *stream.Store[T], key slim.Key) *slim.Meta {
	if obj, exists := in.Get(key); exists {
		return slim.MetaOf(obj)
	}
	return nil
}

// object is a pointer to a type of client-go.
type object[T any] interface {
	*T
	metav1.Object
}

// WriteObject creates or updates an object of a load balancer. One that is another's is left as it is: the error is for
// the user, see ConcernsUser. cached is the one that the cache has, nil for none.
func WriteObject[T any, P object[T]](ctx context.Context, client k8s.Client, o OwnedObject[T], cached *slim.Meta) error {
	ref := k8s.Ref{Resource: o.Resource, Namespace: o.Key.Namespace, Name: o.Key.Name}
	if cached != nil {
		if o.isChecked(cached.ResourceVersion.String()) {
			return nil
		}
		if err := update[T, P](ctx, client, ref, o); !k8s.IsNotFound(err, ref) {
			return err
		}
	}
	to := new(T)
	P(to).SetNamespace(o.Key.Namespace)
	P(to).SetName(o.Key.Name)
	o.edit(P(to), to, true)
	_, err := k8s.Create(ctx, client, o.Resource, to)
	switch {
	case k8s.IsAlreadyExists(err, ref) && cached == nil: // the cache does not have those of others
		return update[T, P](ctx, client, ref, o)
	case IsTerminating(err):
		return nil
	}
	return err
}

// update reads an object, and updates it if it differs.
func update[T any, P object[T]](ctx context.Context, client k8s.Client, ref k8s.Ref, o OwnedObject[T]) error {
	revision := ""
	written, err := k8s.Update(ctx, client, ref, func(to *T) error {
		if err := o.checkOwner(P(to)); err != nil {
			return err
		}
		if o.Fits != nil && !o.Fits(to) {
			return o.foreign(P(to))
		}
		revision = P(to).GetResourceVersion()
		o.edit(P(to), to, false)
		return nil
	})
	if err == nil && !written && o.Last != nil {
		*o.Last = Checked{revision, o.Desired}
	}
	return err
}

// isChecked reports whether an object was as desired in a revision, by what is still desired.
func (o OwnedObject[T]) isChecked(revision string) bool {
	return o.Last != nil && o.Last.revision != "" && o.Last.revision == revision && reflect.DeepEqual(o.Last.desired, o.Desired)
}

func (o OwnedObject[T]) edit(meta metav1.Object, to *T, isNew bool) {
	o.Edit(to, isNew)
	if metav1.GetControllerOf(meta) == nil {
		meta.SetOwnerReferences(append(meta.GetOwnerReferences(), *o.Owner))
	}
}

// checkOwner returns an error if an object is neither controlled by the owner, nor without a controller and with the label.
func (o OwnedObject[T]) checkOwner(obj metav1.Object) error {
	c := metav1.GetControllerOf(obj)
	value := obj.GetLabels()[o.Label]
	if c != nil && c.UID == o.Owner.UID || c == nil && value != "" && (o.Value == "" || value == o.Value) {
		return nil
	}
	return o.foreign(obj)
}

func (o OwnedObject[T]) foreign(obj metav1.Object) error {
	return &foreignError{o.Kind, obj.GetNamespace() + "/" + obj.GetName(), o.Owner.Kind}
}

// foreignError says that an object has the name of one of an owner's, and is not the owner's.
type foreignError struct{ kind, name, owner string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("the %s %s exists and does not belong to the %s: delete or rename one of them", e.kind, e.name, e.owner)
}

func isForeign(err error) bool {
	var foreign *foreignError
	return errors.As(err, &foreign)
}

// IsTerminating reports whether an object was not created because its namespace is being deleted.
func IsTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// AddMeta adds labels and annotations to an object. Others stay.
func AddMeta(to metav1.Object, labels, annotations map[string]string) {
	to.SetLabels(merged(to.GetLabels(), labels))
	to.SetAnnotations(merged(to.GetAnnotations(), annotations))
}

func merged(to, from map[string]string) map[string]string {
	if to == nil && len(from) > 0 {
		to = map[string]string{}
	}
	for key, value := range from {
		to[key] = value
	}
	return to
}
