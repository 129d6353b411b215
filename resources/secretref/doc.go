// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package secretref is how duties report which Secrets and ConfigMaps their objects refer to. Agents read neither: the duty
// secretsync copies what is referred to to the namespaces that agents read.
//
// A duty offers a [Source], mostly of one or more [Watch]es, by [SourceOut].
package secretref
