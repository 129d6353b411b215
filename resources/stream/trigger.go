// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Trigger is an object of the kind as the trigger of a write.
func (k Kind[T]) Trigger(obj *T) k8s.Trigger {
	meta := slim.MetaOf(obj)
	return k8s.Trigger{Kind: k.Name(), Namespace: meta.Namespace.String(), Name: meta.Name, ResourceVersion: meta.ResourceVersion.String()}
}
