// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// cloud is a simulated one, with three machines.
type cloud struct {
	name, machines string   // in messages
	ipam           string   // the mode of its addresses
	prefixes       []string // of variables of real accounts
	env            []string // in place of files of real accounts
	options        []string // of the simulator
	variables      int      // that the simulator prints
	interfaces     func(*unstructured.Unstructured) int
}

// clouds are by the names of their operators.
var clouds = map[string]cloud{
	"aws": {
		name: "EC2", machines: "instances of the type m5.large", ipam: "eni", prefixes: []string{"AWS_"},
		env:     []string{"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull},
		options: []string{"-listen=127.0.0.1:0", "-metadata=127.0.0.1:0"}, variables: 2,
		interfaces: func(n *unstructured.Unstructured) int {
			all, _, _ := unstructured.NestedMap(n.Object, "status", "eni", "enis")
			return len(all)
		},
	},
	"azure": {
		name: "Azure", machines: "machines of a scale set", ipam: "azure", prefixes: []string{"AZURE_", "HTTPS_PROXY=", "https_proxy=", "NO_PROXY=", "no_proxy="},
		options: []string{"-listen=127.0.0.1:0"}, variables: 9,
		interfaces: func(n *unstructured.Unstructured) int {
			all, _, _ := unstructured.NestedSlice(n.Object, "status", "azure", "interfaces")
			return len(all)
		},
	},
}

// startCloud starts a simulated cloud, and returns the environment of programs that are pointed at it: without the variables
// and files of a real account.
func (d Demo) startCloud(ctx context.Context, c cloud) (simulator *child, env []string, err error) {
	d.say("Starting a simulated %s with three %s.", c.name, c.machines)
	env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return slices.ContainsFunc(c.prefixes, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
	env = append(env, c.env...)
	lines := make(chan string, c.variables)
	simulator, err = start(func(line string) {
		if v, is := strings.CutPrefix(strings.TrimSpace(line), "export "); is {
			lines <- v
		}
	}, nil, d.CloudSim, append([]string{"-cloud=" + d.Cloud, "--"}, c.options...)...)
	if err != nil {
		return nil, nil, err
	}
	for range c.variables {
		select {
		case v := <-lines:
			env = append(env, v)
		case <-simulator.ended:
			return nil, nil, fmt.Errorf("the simulated %s ended before it was ready: %v", c.name, simulator.err)
		case <-ctx.Done():
			return nil, nil, errors.Join(context.Cause(ctx), simulator.stop())
		}
	}
	return simulator, env, nil
}

// results are what the operator makes of nodes in the cloud.
func (c cloud) results() []result {
	return []result{
		{"the kinds of cilium.io are registered", []string{"KINDS"}, registered},
		{"every node has its addresses of " + c.name, []string{"NODE", "INSTANCE", "INTERFACES", "ADDRESSES FOR PODS"}, c.addresses},
	}
}

// leastAddresses are what a node has that asks for no number.
const leastAddresses = 8

func (c cloud) addresses(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error) {
	items, err := list(ctx, client, ciliumNodes)
	var waiting []string
	for _, item := range items {
		instance, _, _ := unstructured.NestedString(item.Object, "spec", "instance-id")
		least, _, _ := unstructured.NestedInt64(item.Object, "spec", "ipam", "min-allocate")
		pool, _, _ := unstructured.NestedMap(item.Object, "spec", "ipam", "pool")
		attached := c.interfaces(&item)
		rows = append(rows, []string{item.GetName(), path.Base(instance), strconv.Itoa(attached), strconv.Itoa(len(pool))})
		if len(pool) < max(leastAddresses, int(least)) || attached == 0 {
			waiting = append(waiting, item.GetName())
		}
	}
	if len(items) == 0 {
		waiting = append(waiting, "nodes")
	}
	return rows, strings.Join(waiting, ", "), err
}
