// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	_ "embed"
	"maps"
	"strconv"
	"strings"
	"sync"
)

// limit is how many interfaces an instance of a type can have, and how many IPv4 addresses each, the primary one among them.
type limit struct {
	interfaces, ipv4 int
	hypervisor       string // "" if it is not known
	firstCard        int    // interfaces of the first network card, 0 if it is not known: on some types it has a few of them only
}

// Hypervisors. Machines of metal are those that have none: their network is that of Nitro.
const (
	nitro = "nitro"
	xen   = "xen"
	metal = "metal"
)

// supportsPrefixes reports whether interfaces of the type can have prefixes.
func (l limit) supportsPrefixes() bool { return l.hypervisor == nitro || l.hypervisor == metal }

// limits are those of instance types. They are not changed.
type limits map[string]limit

//go:generate go -C ../../../cmd/tools run ./ec2limits ../../cells/ipam/aws/limits.txt

// builtIn has a line for each type: its name, interfaces, IPv4 addresses of each, hypervisor. Written by cmd/tools/ec2limits
// from the table that AWS publishes.
//
//go:embed limits.txt
var builtIn string

var builtInLimits = sync.OnceValue(func() limits {
	table := limits{}
	for line := range strings.Lines(builtIn) {
		fields := strings.Fields(line)
		if len(fields) != 4 || strings.HasPrefix(line, "#") {
			continue
		}
		interfaces, _ := strconv.Atoi(fields[1])
		ipv4, _ := strconv.Atoi(fields[2])
		table[fields[0]] = limit{interfaces, ipv4, fields[3], 0}
	}
	return table
})

// merge returns the limits of the types that EC2 knows, and those of the user over them. A mapping without a hypervisor has
// the one that the type is known to have.
func merge(known, ec2, mapped limits) limits {
	table := maps.Clone(known)
	maps.Copy(table, ec2)
	for name, l := range mapped {
		if l.hypervisor == "" {
			l.hypervisor = table[name].hypervisor
		}
		table[name] = l
	}
	return table
}
