// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package azure is the provider of the IPAM mode azure: it adds private IPv4 addresses to the network interfaces of machines of
// scale sets and of stand-alone machines. It attaches no interface, and releases nothing. docs/wire/ipam.azure.md has its
// rules; resources/cloudipam is what calls it.
//
// plan.go, instance.go, public.go and resourceid.go are pure. read.go and subnets.go read, assign.go adds addresses, and static.go gives
// machines public ones; they call Azure Resource Manager by the clients of clients.go, whose requests all pass the door (transport.go).
// settings.go and credential.go find the subscription, the resource group and the credentials.
package azure
