// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Ec2limits writes the limits of EC2's instance types that are built into cells/ipam/aws: a line for each, with its name, its
// interfaces, the IPv4 addresses of each, and the hypervisor.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/aws/amazon-vpc-resource-controller-k8s/pkg/aws/vpc"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "ec2limits: say which file to write")
		os.Exit(2)
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, "# Written by make generate: cmd/tools/ec2limits. Do not edit.")
	for _, name := range slices.Sorted(maps.Keys(vpc.Limits)) {
		l := vpc.Limits[name]
		hypervisor := l.Hypervisor
		if l.IsBareMetal {
			hypervisor = "metal"
		}
		fmt.Fprintln(&b, name, l.Interface, l.IPv4PerInterface, hypervisor)
	}
	if err := os.WriteFile(os.Args[1], b.Bytes(), 0o644); err != nil { //nolint:gosec // a source file
		fmt.Fprintln(os.Stderr, "ec2limits:", err)
		os.Exit(1)
	}
}
