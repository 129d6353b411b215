// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package lockgc deletes identity locks in the kvstore whose holders hang, so that waiting clients continue.
//
// docs/wire/lockgc.md has the rules. A holder whose lock is deleted notices it: its transactions are guarded by the lock.
package lockgc
