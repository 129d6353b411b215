// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package logtest lets tests read a log while it is written. Only tests import it.
package logtest
