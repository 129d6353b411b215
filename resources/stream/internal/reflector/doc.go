// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package reflector lists and watches one resource, and fills a change list.
//
// What may not live here: subscribers, and how long a stream runs.
package reflector
