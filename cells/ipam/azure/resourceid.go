// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import "strings"

// machine is where a machine is: the id of a CiliumNode, parsed. Names of Azure have no case.
type machine struct {
	subscription, group string
	scaleSet            string // "" for a stand-alone machine
	name                string // number in the scale set, or name
}

// parseMachine parses the id of a machine, or of what is below one.
func parseMachine(id string) (m machine, ok bool) {
	part := strings.Split(id, "/")
	is := func(n int, name string) bool {
		return len(part) > n+1 && strings.EqualFold(part[n], name) && part[n+1] != ""
	}
	if !is(1, "subscriptions") || !is(3, "resourceGroups") || !is(5, "providers") || !strings.EqualFold(part[6], "Microsoft.Compute") {
		return m, false
	}
	m = machine{subscription: part[2], group: part[4]}
	switch {
	case is(7, "virtualMachineScaleSets") && is(9, "virtualMachines"):
		m.scaleSet, m.name = part[8], part[10]
	case is(7, "virtualMachines"):
		m.name = part[8]
	default:
		return machine{}, false
	}
	return m, true
}

// lastOf is the last part of an id: a name.
func lastOf(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// groupOf is the resource group in an id.
func groupOf(id string) string {
	if part := strings.Split(id, "/"); len(part) > 4 && strings.EqualFold(part[3], "resourceGroups") {
		return part[4]
	}
	return ""
}

// networkOf is the id of the virtual network of a subnet, in lower case.
func networkOf(subnet string) string {
	id := strings.ToLower(subnet)
	if end := strings.LastIndex(id, "/subnets/"); end >= 0 {
		return id[:end]
	}
	return ""
}

// subnetPath is where a subnet is.
type subnetPath struct{ subscription, group, network, name string }

// parseSubnet parses the id of a subnet.
func parseSubnet(id string) (s subnetPath, ok bool) {
	part := strings.Split(id, "/")
	for at, name := range map[int]string{1: "subscriptions", 3: "resourceGroups", 6: "Microsoft.Network", 7: "virtualNetworks", 9: "subnets"} {
		if len(part) != 11 || !strings.EqualFold(part[at], name) {
			return s, false
		}
	}
	s = subnetPath{part[2], part[4], part[8], part[10]}
	return s, s.subscription != "" && s.group != "" && s.network != "" && s.name != ""
}
