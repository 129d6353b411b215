// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package listener decides what becomes of the listeners of Gateways and ListenerSets, and of routes at them.
//
// Like package route it is pure, and asks a lookup. listener.go decides about listeners alone, of one object and of several; attach.go which of
// them serve a route, and claim.go which routes have the hosts that several ask for. The rules are in docs/wire/gateway.md.
package listener
