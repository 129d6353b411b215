// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/configz"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// controllers is all that the controller manager runs; the garbage collector runs
// beside it. Those of nodes, pods and workloads would evict, delete and replace
// what a loader made: no kubelet stands behind it.
var controllers = []string{
	names.NamespaceController,
	names.ServiceAccountController,
	names.ServiceAccountTokenController,
	names.RootCACertificatePublisherController,
	names.ClusterRoleAggregationController,
}

const controllerManagerUser = "system:kube-controller-manager"

func (c *ControlPlane) controllerManagerArgs(kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--controllers=" + strings.Join(controllers, ","),
		"--leader-elect=false",
		"--secure-port=0",
		"--use-service-account-credentials=true", // each controller has its own RBAC
		"--service-account-private-key-file=" + c.identity.file("sa.key"),
		"--root-ca-file=" + c.identity.file("ca.crt"),
		"--kube-api-qps=500", "--kube-api-burst=1000",
	}
}

// startControllerManager starts the controller manager. It does not wait.
func (c *ControlPlane) startControllerManager() error {
	kubeconfig := filepath.Join(c.identity.dir, "controller-manager.kubeconfig")
	if err := c.identity.WriteUserKubeconfig(kubeconfig, c.URL(), controllerManagerUser); err != nil {
		return err
	}
	c.manager = run("controller manager", c.failed, func(ctx context.Context) error {
		return runControllerManager(ctx, c.controllerManagerArgs(kubeconfig))
	})
	return nil
}

func runControllerManager(ctx context.Context, args []string) error {
	opts, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return fmt.Errorf("make the controller manager's options: %w", err)
	}
	known, disabled, aliases := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
	flags := pflag.NewFlagSet("kube-controller-manager", pflag.ContinueOnError)
	for _, set := range opts.Flags(known, disabled, aliases).FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse the controller manager's flags: %w", err)
	}
	config, err := opts.Config(ctx, known, disabled, aliases)
	if err != nil {
		return fmt.Errorf("configure the controller manager: %w", err)
	}
	defer configz.Delete(app.ConfigzName)
	return app.Run(ctx, config.Complete())
}
