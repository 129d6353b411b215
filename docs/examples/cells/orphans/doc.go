// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package orphans is the template of a sweep: it deletes CiliumNodes whose Node does not exist.
package orphans
