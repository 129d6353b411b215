// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package identitygc has what the garbage collectors of identities share, wherever identities are stored: the options, one
// limit of the rate of deletes, and the metrics of the original. docs/wire/identitygc.md has their rules.
package identitygc
