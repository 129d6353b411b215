// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package cloudipam is the mechanism of IPAM duties whose addresses are those of a cloud: it keeps enough addresses on
// the network interfaces of every node, publishes them in its CiliumNode, and releases surplus ones after a handshake
// with the agent. A vendor implements a [Provider] and declares its duty with [Module].
//
// docs/wire/cloudipam.md has the rules. watermarks.go, release.go, pools.go and desired.go are pure: no I/O, no clock, no
// goroutines. state.go caches the state of the cloud, controller.go watches and enqueues, maintain.go calls the provider,
// write.go writes CiliumNodes. A provider passes every call through the [outside.Door] that its constructor gets; package
// cloudtest checks that, and the other promises.
//
// What may not live here: anything of a single cloud.
package cloudipam
