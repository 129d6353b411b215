// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Desired is a CiliumEnvoyConfig as a duty wants it.
type Desired struct {
	Key slim.Key
	// Owner is the controller of the object; nil for an object without one.
	Owner *metav1.OwnerReference
	// Former reports whether another controller is one that the original gives such an object: Owner takes its place. nil for none.
	Former func(kind, name string, uid types.UID) bool
	// NodeSourceAddress has connections to backends come from the address of the node.
	NodeSourceAddress bool
	// LabelLater has the label for that come with the next other change of an object which has the annotation: agents of the release
	// read that (ENV-14).
	LabelLater bool
	// Labels and Annotations are added to those that the object has.
	Labels, Annotations map[string]string
	Spec                envoy.Encoded
}

// Ref is the reference of a CiliumEnvoyConfig.
func Ref(key slim.Key) k8s.Ref {
	return k8s.Ref{Resource: v2.CiliumEnvoyConfigResource, Namespace: key.Namespace, Name: key.Name}
}

// OwnedByOtherError says that an object has the name of the one to be written, and is another writer's. It is left as it is.
type OwnedByOtherError struct {
	Ref   k8s.Ref
	Owner string // of the object that is to be, "" for none
}

func (e *OwnedByOtherError) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("%s exists and has a controller: delete it, or choose another name", e.Ref)
	}
	return fmt.Sprintf("%s exists and is not controlled by %s: delete or rename it", e.Ref, e.Owner)
}

// ownership is whose an object is.
type ownership int

const (
	ours      ownership = iota
	replaced            // its owner was deleted, and had the name of ours: garbage collection deletes it
	ofAnother           // another writer's
	former              // of a controller that the original gives it: ours, once it is written
)

// ownershipOf compares the controller that an object has with the one that it is to have.
func ownershipOf(kind, name string, uid types.UID, want *metav1.OwnerReference) ownership {
	switch {
	case want == nil && uid == "", want != nil && uid == want.UID:
		return ours
	case want != nil && uid != "" && kind == want.Kind && name == want.Name:
		return replaced
	}
	return ofAnother
}

func (o *Object) ownership(want *metav1.OwnerReference) ownership {
	ref := o.Controller.Reference()
	return ownershipOf(ref.Kind.String(), ref.Name, ref.UID.API(), want)
}

// ownershipOf is whose an object with a controller is.
func (d Desired) ownershipOf(kind, name string, uid types.UID) ownership {
	is := ownershipOf(kind, name, uid, d.Owner)
	if is == ofAnother && d.Former != nil && d.Former(kind, name, uid) {
		return former
	}
	return is
}

// check returns an error if an object as the API server has it is not ours.
func (d Desired) check(ref k8s.Ref, obj metav1.Object) error {
	c := metav1.GetControllerOf(obj)
	if c == nil {
		c = &metav1.OwnerReference{}
	}
	return d.ownershipOf(c.Kind, c.Name, c.UID).err(ref, d.Owner)
}

func (o ownership) err(ref k8s.Ref, want *metav1.OwnerReference) error {
	switch {
	case o == ours, o == former:
		return nil
	case o == replaced:
		return reconcile.Recheck()
	case want == nil:
		return &OwnedByOtherError{Ref: ref}
	}
	return &OwnedByOtherError{ref, want.Kind + " " + want.Name}
}

// IsCurrent reports whether the cache has a CiliumEnvoyConfig as it is desired. Of the spec the digest is compared.
func IsCurrent(in *stream.Store[Object], d Desired) bool {
	has, exists := in.Get(d.Key)
	return exists && !has.CannotDecode("metadata.ownerReferences") && has.ownership(d.Owner) == ours && has.isCurrent(d)
}

// isCurrent reports whether an object is as it is desired.
func (o *Object) isCurrent(d Desired) bool {
	labels, annotations := d.metadata()
	if d.LabelLater {
		delete(labels, sourceAddressLabel)
	}
	return o.Spec.Digest == d.Spec.Digest && !o.CannotDecode("spec", "metadata") &&
		hasAll(o.Labels, labels) && hasAll(o.Annotations.Labels, annotations)
}

func hasAll(has slim.Labels, want map[string]string) bool {
	for key, value := range want {
		if v, exists := has.Lookup(key); !exists || v != value {
			return false
		}
	}
	return true
}

// metadata is the labels and annotations that an object is to have.
func (d Desired) metadata() (labels, annotations map[string]string) {
	labels, annotations = maps.Clone(d.Labels), maps.Clone(d.Annotations)
	if d.NodeSourceAddress {
		labels = merged(labels, map[string]string{sourceAddressLabel: "false"})
		annotations = merged(annotations, map[string]string{sourceAddressAnnotation: "false"})
	}
	return labels, annotations
}

// Write creates a CiliumEnvoyConfig, or updates the one that is ours, if it differs. Fields that are not desired here stay as
// they are: metadata of others among them. It returns whether something was written, and an OwnedByOtherError for an object
// that is not ours.
func Write(ctx context.Context, c k8s.Client, in *stream.Store[Object], d Desired) (written bool, err error) {
	ref := Ref(d.Key)
	has, exists := in.Get(d.Key)
	if !exists {
		return create(ctx, c, ref, d)
	}
	if !has.CannotDecode("metadata.ownerReferences") {
		owner := has.Controller.Reference()
		is := d.ownershipOf(owner.Kind.String(), owner.Name, owner.UID.API())
		if err := is.err(ref, d.Owner); err != nil || is == ours && has.isCurrent(d) {
			return false, err
		}
	}
	spec := opaqueSpec()
	_, written, err = c.Modify(spec.With(ctx), ref, func(u *unstructured.Unstructured) error {
		if err := d.check(ref, u); err != nil {
			return err
		}
		d.own(u)
		d.apply(u, spec)
		return nil
	})
	if k8s.IsNotFound(err, ref) {
		err = reconcile.Recheck()
	}
	return written, err
}

// own makes the owner the controller in place of a former one.
func (d Desired) own(u *unstructured.Unstructured) {
	has := metav1.GetControllerOf(u)
	if has == nil || d.Owner == nil || has.UID == d.Owner.UID {
		return
	}
	owners := slices.DeleteFunc(u.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == has.UID })
	u.SetOwnerReferences(append(owners, *d.Owner))
}

func create(ctx context.Context, c k8s.Client, ref k8s.Ref, d Desired) (bool, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(v2.CiliumEnvoyConfigResource.GroupVersion().String())
	u.SetKind("CiliumEnvoyConfig")
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	if d.Owner != nil {
		u.SetOwnerReferences([]metav1.OwnerReference{*d.Owner})
	}
	spec := opaqueSpec()
	d.apply(u, spec)
	_, err := c.Create(spec.With(ctx), ref.Resource, u)
	if k8s.IsAlreadyExists(err, ref) { // the cache is behind
		return false, reconcile.Recheck()
	}
	return err == nil, err
}

// opaqueSpec is the spec, which may have a megabyte, by the digest of what it means.
func opaqueSpec() *k8s.OpaqueField {
	return k8s.NewOpaqueField("spec", func(value []byte) (string, error) {
		digest, _, err := digestOf(value)
		return digest.String(), err
	})
}

// apply sets what is desired of an object. A spec that means the same stays as it is.
func (d Desired) apply(u *unstructured.Unstructured, spec *k8s.OpaqueField) {
	labels, annotations := d.metadata()
	AddMeta(u, labels, annotations)
	if digest := d.Spec.Digest.String(); u.Object["spec"] != digest {
		spec.Set(u, digest, d.Spec.JSON)
	}
}

// Delete deletes the CiliumEnvoyConfig of a name if it is ours.
func Delete(ctx context.Context, c k8s.Client, in *stream.Store[Object], key slim.Key, owner *metav1.OwnerReference) error {
	has, exists := in.Get(key)
	if !exists || has.CannotDecode("metadata.ownerReferences") || has.ownership(owner) != ours {
		return nil
	}
	ref := Ref(key)
	ref.UID = has.UID.API()
	// the revision is that of the cache: an object that was given to another owner since is not deleted
	err := c.Delete(ctx, ref, k8s.Preconditions{UID: ref.UID, ResourceVersion: has.ResourceVersion.String()})
	if k8s.IsNotFound(err, ref) || k8s.IsConflict(err, ref) {
		return reconcile.Recheck()
	}
	return err
}

// ConcernsUser reports whether an error of Write or WriteObject is for the user to remedy: it is no failure, and nothing is to be retried
// before something changes.
func ConcernsUser(err error) bool {
	var (
		foreign  *OwnedByOtherError
		tooLarge *envoy.TooLargeError
	)
	return errors.As(err, &foreign) || errors.As(err, &tooLarge) || isForeign(err)
}
