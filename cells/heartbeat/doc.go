// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package heartbeat writes the key that proves to agents and operators that the kvstore accepts writes.
// docs/wire/heartbeat.md has the rules.
package heartbeat
