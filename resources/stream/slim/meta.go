// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import "k8s.io/client-go/tools/cache"

// Key names an object within its kind. Its String is "namespace/name", or
// "name" for objects without a namespace.
type Key = cache.ObjectName

// Meta is what every kept object has. A slim type embeds it in its metadata:
//
//	type Pod struct {
//		PodMeta `json:"metadata"`
//	}
//	type PodMeta struct {
//		slim.Meta
//		Labels slim.Labels `json:"labels"`
//	}
//
// or, if it keeps nothing else of the metadata, directly:
//
//	type Thing struct {
//		slim.Meta `json:"metadata"`
//	}
type Meta struct {
	Name            string   `json:"name"`
	Namespace       String   `json:"namespace"`
	UID             UID      `json:"uid"`
	ResourceVersion Revision `json:"resourceVersion"`
}

// Key returns the object's key.
func (m *Meta) Key() Key { return Key{Namespace: m.Namespace.String(), Name: m.Name} }

func (m *Meta) slimMeta() *Meta { return m }

// holder is met by pointers to types that embed Meta, whichever package they
// are in: promoted methods keep their unexported names.
type holder interface{ slimMeta() *Meta }

// MetaOf returns the Meta that *obj embeds. obj points to a type that embeds Meta, which the
// constructors of Codec check. It panics with anything else.
func MetaOf(obj any) *Meta { return obj.(holder).slimMeta() }
