// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// maxObjectName is the length of the longest name of a CiliumEnvoyConfig.
const maxObjectName = 253

// replaces marks a CiliumEnvoyConfig that was written again after another one of the same Service was deleted: agents take the
// redirection of a Service away with either.
const replaces = "skep.dev/replaces"

// ConfigNames are the names that the CiliumEnvoyConfig of an owner may have: the original writes a long one up to 1.19, and a
// shortened one from 1.20 on, and leaves the long one behind (ENV-32).
type ConfigNames struct{ long, short slim.Key }

// NewConfigNames returns the names for a name that may be too long.
func NewConfigNames(namespace, name string) ConfigNames {
	n := ConfigNames{slim.Key{Namespace: namespace, Name: name}, slim.Key{Namespace: namespace, Name: envoy.Shorten(name)}}
	if len(name) > maxObjectName {
		n.long = n.short
	}
	return n
}

// Has reports whether a name is one of these.
func (n ConfigNames) Has(key slim.Key) bool { return key == n.long || key == n.short }

// Choose returns the name of the CiliumEnvoyConfig: that of the one which the owner has, else that of the release. Of two that the
// owner has, other is the one that is to go; it is the zero Key otherwise.
func (n ConfigNames) Choose(in *stream.Store[Object], owner *metav1.OwnerReference, r release.Release) (use, other slim.Key) {
	use, other = n.long, n.short
	if release.ShortConfigNames.In(r) {
		use, other = n.short, n.long
	}
	switch hasUse, hasOther := isOwned(in, use, owner), isOwned(in, other, owner); {
	case use == other || !hasOther:
		return use, slim.Key{}
	case !hasUse:
		return other, slim.Key{}
	}
	return use, other
}

// Write writes the CiliumEnvoyConfig under the name of Choose, which d goes without, and deletes the other one.
func (n ConfigNames) Write(ctx context.Context, c k8s.Client, in *stream.Store[Object], d Desired, r release.Release) (written bool, err error) {
	var other slim.Key
	d.Key, other = n.Choose(in, d.Owner, r)
	if written, err = Write(ctx, c, in, d); err != nil || other == (slim.Key{}) {
		return written, err
	}
	if err := Delete(ctx, c, in, other, d.Owner); err != nil {
		return written, err
	}
	annotations := map[string]string{replaces: other.Name}
	for key, value := range d.Annotations {
		annotations[key] = value
	}
	d.Annotations = annotations
	_, err = Write(ctx, c, in, d)
	return true, err
}

// Delete deletes the CiliumEnvoyConfigs of both names that are the owner's.
func (n ConfigNames) Delete(ctx context.Context, c k8s.Client, in *stream.Store[Object], owner *metav1.OwnerReference) error {
	if n.long == n.short {
		return Delete(ctx, c, in, n.long, owner)
	}
	return errors.Join(Delete(ctx, c, in, n.long, owner), Delete(ctx, c, in, n.short, owner))
}

func isOwned(in *stream.Store[Object], key slim.Key, owner *metav1.OwnerReference) bool {
	has, exists := in.Get(key)
	return exists && !has.CannotDecode("metadata.ownerReferences") && has.ownership(owner) == ours
}
