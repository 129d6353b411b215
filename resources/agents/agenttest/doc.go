// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package agenttest stands for agents in tests: it is not ready where an agent of a release is not, for lack of what it waits for and lists.
package agenttest
