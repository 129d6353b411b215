// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// Object is a Secret or a ConfigMap.
type Object struct {
	Kind Kind
	slim.Key
}

// Kind is the kind of an Object.
type Kind string

// The kinds of objects that are copied.
const (
	Secret    Kind = "Secret"
	ConfigMap Kind = "ConfigMap"
)

func (o Object) String() string { return string(o.Kind) + " " + o.Key.String() }

// CopyName is the name of the copy.
func (o Object) CopyName() string {
	if o.Kind == ConfigMap {
		return envoy.ConfigMapCopy(envoy.Name(o.Key))
	}
	return envoy.SecretCopy(envoy.Name(o.Key))
}

// Source reports which Secrets, or which ConfigMaps, the objects of a duty refer to.
type Source interface {
	// Name is that of the source, such as ingresses; no other source has it.
	Name() string
	// Namespace is where the copies are to be.
	Namespace() string
	// Kind is what the objects refer to.
	Kind() Kind
	// Follow reports all references and their changes until ctx ends.
	Follow(ctx context.Context, r Recorder)
	// Complete returns why there may be references that were not reported yet. Then no copy is deleted.
	Complete() error
}

// PlainNames is a source whose copies agents find by the plain name, which they compute themselves.
type PlainNames interface {
	Source
	// Initial returns what the objects that there are refer to at a start, the oldest object's first. Without these, no other object is given a name: of two
	// that need one plain name, the older one is to have it. It gives up after some seconds, and when ctx ends.
	Initial(ctx context.Context) []Object
}

// Pins is a source that pins names of copies: no object is given one before PinAll has returned.
type Pins interface {
	Source
	PinAll(ctx context.Context)
}

// SourceOut offers a source to the duty that copies.
type SourceOut struct {
	cell.Out

	Source Source `group:"references to secrets"`
}

// Recorder records the references of one source. It is safe for concurrent use, and never waits for a request.
type Recorder interface {
	// Set replaces what an object refers to. Without any it refers to none.
	Set(from corev1.ObjectReference, to ...Object)
	// SetFirst is a Set where the object refers to more than is known by name: the number of others.
	SetFirst(from corev1.ObjectReference, others int, first ...Object)
	// SetUnknown says that what an object refers to cannot be known now. It keeps what it was last set to. Where that is nothing, as after
	// a start, copies stay that may be its own: of objects of its namespace, and of others those that a CiliumEnvoyConfig names.
	SetUnknown(from corev1.ObjectReference)
	// Changed reports that an object may have changed that is referred to. Changes of Secrets are known without.
	Changed(Object)
}
