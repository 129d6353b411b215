// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package changelog keeps the objects of a stream in the order of their last
// change, for any number of subscribers, each of which is a position.
//
// What may not live here: requests, and anything that knows where objects come from.
package changelog
