// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package v2alpha1 holds the kinds of cilium.io/v2alpha1 and the shapes that only they are made of.
//
// What the comment of package v2 says about required and absent fields holds here as well.
// The comments on kinds, types and fields are what "kubectl explain" shows.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:Optional
// +groupName=cilium.io
package v2alpha1
