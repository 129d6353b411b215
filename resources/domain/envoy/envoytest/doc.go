// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package envoytest checks configurations for Envoy as agents and Envoy would: all resources decode and are valid, names,
// filter chains and domains are unique, and what is referred to exists. References to secrets have the form that agents
// know.
package envoytest
