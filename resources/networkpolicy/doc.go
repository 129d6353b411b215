// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package networkpolicy has what duties share that read CiliumNetworkPolicies and CiliumClusterwideNetworkPolicies: one
// stream of each kind, the options of agents that decide which rules are valid, and the contract of providers of groups.
//
// A policy is checked as it is decoded: what is wrong with its rules is kept in place of the rules.
package networkpolicy
