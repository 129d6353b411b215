// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package report writes the results of contests: as text, Markdown or JSON.
//
// What may not live here: judgement, which is the results' own.
package report
