// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package agents is what duties know of the agents of nodes: the options that select their pods and name the taint
// of nodes that have none yet, the streams of these pods and of the Nodes, and the state that follows. It decides
// nothing and writes nothing.
package agents
