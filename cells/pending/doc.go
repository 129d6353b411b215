// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package pending accepts the options of duties that are not built yet, so that
// a configuration made for the original is taken as it is, and says once which
// of them do nothing, and which options of other cells ask for more than is built.
// The lists shrink with each duty; nothing else belongs here.
package pending
