// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package nodegc deletes CiliumNodes whose Node is gone, so that their CIDRs are free again. docs/wire/nodegc.md has the
// rules.
package nodegc
