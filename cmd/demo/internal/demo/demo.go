// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/skep-operator/skep/resources/clustertest/gatewayapi"
)

// showTimeout is how long the operator may take for all results. It takes a few
// seconds; the machine may be busy.
const showTimeout = time.Minute

// Demo is one show.
type Demo struct {
	// Out gets everything that is shown.
	Out io.Writer
	// Operator is the path of the operator's binary.
	Operator string
	// Manifests is the directory of what a cluster of our own is filled with.
	Manifests string
	// Kubeconfig, as in the environment variable KUBECONFIG, leads to an existing
	// cluster, into which nothing is loaded. Empty starts a cluster of our own.
	Kubeconfig string
	// Cloud is aws or azure for a cluster of our own whose nodes are in a simulated cloud.
	Cloud string
	// CloudSim is the path of the simulator's binary.
	CloudSim string
	// Args are more arguments for the operator.
	Args []string

	env   []string      // of the operator; nil: that of the demo
	limit time.Duration // in place of showTimeout, if it is not 0
}

// Run shows until the context ends, which is no error, or the operator does,
// which is one. It leaves nothing running and no files.
func (d Demo) Run(ctx context.Context) error {
	d.Out = &serialWriter{out: d.Out}
	scratch, err := os.MkdirTemp("", "skep-demo-")
	if err != nil {
		return fmt.Errorf("make a scratch folder: %w", err)
	}
	defer os.RemoveAll(scratch)
	stage := d.ownCluster
	switch {
	case d.Cloud != "" && d.Kubeconfig != "":
		return errors.New("KUBECONFIG is set: unset it, a simulated cloud has a cluster of its own")
	case d.Cloud != "":
		c, known := clouds[d.Cloud]
		if !known {
			return fmt.Errorf("there is no cloud %q: use %s", d.Cloud, strings.Join(slices.Sorted(maps.Keys(clouds)), " or "))
		}
		stage = func(ctx context.Context, scratch string) error { return d.cloudCluster(ctx, scratch, c) }
	case d.Kubeconfig != "":
		stage = d.givenCluster
	}
	if err := stage(ctx, scratch); err != nil && ctx.Err() == nil {
		return err
	}
	d.say("Stopped; the scratch folder is removed.")
	return nil
}

// ownCluster shows what the operator does in a cluster that it starts.
func (d Demo) ownCluster(ctx context.Context, scratch string) error {
	definitions, err := gatewayapi.Definitions(ctx, "standard", "gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants")
	if err != nil {
		return err
	}
	return d.fillCluster(ctx, scratch, "a small shop on a few nodes, without kubelets", definitions, results,
		"--ipam=cluster-pool", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--cluster-pool-ipv6-cidr=fd00:10::/96",
		"--identity-allocation-mode=crd", "--identity-management-mode=operator",
		"--enable-cilium-endpoint-slice", "--ces-controller-mode=slim", "--cilium-pod-namespace=kube-system",
		"--enable-envoy-config", "--enable-ingress-controller", "--enable-gateway-api", "--kube-proxy-replacement=true")
}

// cloudCluster is ownCluster with nodes in a simulated cloud.
func (d Demo) cloudCluster(ctx context.Context, scratch string, c cloud) error {
	simulator, env, err := d.startCloud(ctx, c)
	if err != nil {
		return err
	}
	d.env = env
	err = d.fillCluster(ctx, scratch, "nodes on "+c.machines, nil, func([]*unstructured.Unstructured) []result { return c.results() }, "--ipam="+c.ipam)
	d.say("Stopping the simulated %s.", c.name)
	return errors.Join(err, simulator.stop())
}

// fillCluster starts a cluster, fills it with the objects of the directory, definitions first, and shows what the operator does
// in it.
func (d Demo) fillCluster(ctx context.Context, scratch, what string, definitions []*unstructured.Unstructured, results func([]*unstructured.Unstructured) []result, args ...string) error {
	objects, err := readManifests(d.Manifests)
	if err != nil {
		return err
	}
	plane, err := d.startControlPlane(ctx, filepath.Join(scratch, "cluster"))
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(scratch, "cluster", "kubeconfig")
	err = d.runOperator(ctx, scratch, kubeconfig, func(ctx context.Context, config *rest.Config, _ string) error {
		d.say("Loading %d objects of %s: %s.", len(objects), d.Manifests, what)
		loader, err := newLoader(config)
		if err != nil {
			return err
		}
		for _, object := range slices.Concat(definitions, objects) {
			if err := loader.apply(ctx, object); err != nil {
				return err
			}
		}
		return d.showResults(ctx, config, results(objects))
	}, args...)
	d.say("Stopping the control plane.")
	return errors.Join(err, plane.stop())
}

// givenCluster runs the operator in an existing cluster.
func (d Demo) givenCluster(ctx context.Context, scratch string) error {
	files := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(d.Kubeconfig)}
	config, err := files.Load()
	if err != nil {
		return fmt.Errorf("read KUBECONFIG=%s: %w", d.Kubeconfig, err)
	}
	server := config.CurrentContext
	if at, ok := config.Contexts[server]; ok && config.Clusters[at.Cluster] != nil {
		server += ", " + config.Clusters[at.Cluster].Server
	}
	d.say("KUBECONFIG is set: the operator runs against THAT cluster (%s).\n"+
		"    Unset KUBECONFIG for a cluster of the demo's own. Nothing is loaded into this one, but the operator takes part\n"+
		"    in the election for kube-system/cilium-operator-resource-lock, and acts there if it is elected.", server)
	args := []string{"--k8s-namespace=kube-system", "--ipam=kubernetes"}
	if err := d.showDuties(ctx, args); err != nil {
		return err
	}
	// The operator takes one file, KUBECONFIG may be a list of them.
	kubeconfig := filepath.Join(scratch, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return fmt.Errorf("copy KUBECONFIG=%s: %w", d.Kubeconfig, err)
	}
	return d.runOperator(ctx, scratch, kubeconfig, d.waitForLeader, args...)
}

// act is what is shown of a running operator, whose socket is given.
type act func(ctx context.Context, config *rest.Config, socket string) error

// runOperator runs the operator, and show beside it, until the context or the
// operator ends.
func (d Demo) runOperator(ctx context.Context, scratch, kubeconfig string, show act, args ...string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	socket := filepath.Join(scratch, "operator.sock")
	args = append([]string{
		"--k8s-kubeconfig-path=" + kubeconfig, "--operator-sock-path=" + socket,
		"--operator-api-serve-addr=", "--enable-gops=false", "--log-opt=format=text",
	}, args...)
	args = append(args, d.Args...)
	d.say("Starting the operator. Its log follows, without the lines that list its options.\n    %s", commandLine(d.Operator, args))
	operator, err := start(d.log, d.env, d.Operator, args...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		<-operator.ended
		cancel(fmt.Errorf("the operator ended by itself: %v", operator.err))
	}()
	d.perform(ctx, config, show, socket, kubeconfig)
	<-ctx.Done()
	d.say("Stopping the operator.")
	return errors.Join(context.Cause(ctx), operator.stop())
}

// perform shows what happens, and where to look. If the show fails, the operator
// runs on, so that the reason can be looked for.
func (d Demo) perform(ctx context.Context, config *rest.Config, show act, socket, kubeconfig string) {
	limit := cmp.Or(d.limit, showTimeout)
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it takes longer than %v", limit))
	defer cancel()
	if err := show(limited, config, socket); err != nil && ctx.Err() == nil {
		d.say("This did not go as it should: %v", err)
	}
	if ctx.Err() == nil {
		d.showStatus(ctx, socket)
		d.showMore(socket, kubeconfig)
	}
}
