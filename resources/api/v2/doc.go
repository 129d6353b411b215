// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package v2 holds the kinds of cilium.io/v2 and the shapes they are made of.
//
// A field is required only where it is marked so; everything else is left out of the JSON when it is not set.
// Three tags say when that is: omitempty for scalars, maps and lists whose emptiness means absence,
// omitzero for structs, and omitzero without omitempty for lists and maps whose emptiness means something
// (a present but empty peer list of a policy selects nothing, an absent one selects everything).
// A pointer stands where a zero value differs from absence.
//
// Integers are as wide as the schema lets them be, and formatted strings are strings,
// so that an object that the API server admits can be decoded. Two types of Kubernetes are narrower than their schemas:
// the number of an ICMP type has 32 bits, and the letters in a time are capitals.
//
// The comments on kinds, types and fields are what "kubectl explain" shows.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:Optional
// +groupName=cilium.io
package v2
