// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// startCloud starts a simulated EC2, and returns the environment of programs that are pointed at it: without the variables
// and files of a real account.
func (d Demo) startCloud(ctx context.Context) (cloud *child, env []string, err error) {
	d.say("Starting a simulated EC2 with three instances, of the type m5.large.")
	env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") })
	env = append(env, "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
	const variables = 2
	lines := make(chan string, variables)
	cloud, err = start(func(line string) {
		if v, is := strings.CutPrefix(strings.TrimSpace(line), "export "); is {
			lines <- v
		}
	}, nil, d.CloudSim, "-cloud=aws", "--", "-listen=127.0.0.1:0", "-metadata=127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	for range variables {
		select {
		case v := <-lines:
			env = append(env, v)
		case <-cloud.ended:
			return nil, nil, fmt.Errorf("the simulated EC2 ended before it was ready: %v", cloud.err)
		case <-ctx.Done():
			return nil, nil, errors.Join(context.Cause(ctx), cloud.stop())
		}
	}
	return cloud, env, nil
}

// cloudResults are what the operator makes of nodes in EC2.
var cloudResults = []result{
	{"the kinds of cilium.io are registered", []string{"KINDS"}, registered},
	{"every node has its addresses of EC2", []string{"NODE", "INSTANCE", "INTERFACES", "ADDRESSES FOR PODS"}, interfaces},
}

// leastAddresses are what a node has that asks for no number.
const leastAddresses = 8

func interfaces(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error) {
	items, err := list(ctx, client, ciliumNodes)
	var waiting []string
	for _, item := range items {
		instance, _, _ := unstructured.NestedString(item.Object, "spec", "instance-id")
		least, _, _ := unstructured.NestedInt64(item.Object, "spec", "ipam", "min-allocate")
		pool, _, _ := unstructured.NestedMap(item.Object, "spec", "ipam", "pool")
		attached, _, _ := unstructured.NestedMap(item.Object, "status", "eni", "enis")
		rows = append(rows, []string{item.GetName(), instance, strconv.Itoa(len(attached)), strconv.Itoa(len(pool))})
		if len(pool) < max(leastAddresses, int(least)) || len(attached) == 0 {
			waiting = append(waiting, item.GetName())
		}
	}
	if len(items) == 0 {
		waiting = append(waiting, "nodes")
	}
	return rows, strings.Join(waiting, ", "), err
}
