// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package ciliumio holds what duties read of custom resources of cilium.io, as
// slim types, and the kinds of streams that carry them.
//
// A field is here because a duty reads it. Writes never start from these types:
// they edit the object as the server has it (k8s.Client.Modify).
package ciliumio
