// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/skep-operator/skep/cmd/devcluster/internal/controlplane"
	"github.com/skep-operator/skep/cmd/devcluster/internal/faultproxy"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

// proxyKubeconfig writes the administrator's kubeconfig through a proxy.
func (c *Cluster) proxyKubeconfig(proxy *faultproxy.Proxy) (string, error) {
	file := c.dir.file("kubeconfigs", proxy.ID())
	if proxy.ID() == control.BackendAPIServer {
		file = c.dir.file("kubeconfig-proxy")
	}
	return file, c.identity.WriteAdminKubeconfig(file, "https://"+proxy.Address())
}

// kubeconfig writes the kubeconfig of a user, each time into a new file.
func (c *Cluster) kubeconfig(ctx context.Context, ask control.Kubeconfig) (string, error) {
	if c.plane == nil {
		return "", fmt.Errorf("this devcluster is an etcd without a control plane: it has no kubeconfig")
	}
	server := c.plane.URL()
	if ask.Proxy != "" {
		d, err := c.proxies.find(ask.Proxy)
		if err != nil {
			return "", err
		}
		server = "https://" + d.Address()
	}
	file, err := c.newKubeconfigFile()
	if err != nil {
		return "", err
	}
	return file, c.writeKubeconfig(ctx, file, server, ask)
}

func (c *Cluster) newKubeconfigFile() (string, error) {
	file, err := os.CreateTemp(c.dir.file("kubeconfigs"), "kubeconfig-*")
	if err != nil {
		return "", fmt.Errorf("make a kubeconfig file: %w", err)
	}
	return file.Name(), file.Close()
}

func (c *Cluster) writeKubeconfig(ctx context.Context, file, server string, ask control.Kubeconfig) error {
	switch {
	case ask.ServiceAccount != "" && ask.User != "":
		return fmt.Errorf("a kubeconfig is for a user or for a service account, not for both")
	case ask.ServiceAccount != "":
		namespace, name, ok := strings.Cut(ask.ServiceAccount, "/")
		if !ok {
			return fmt.Errorf("service account %q is not of the form namespace/name", ask.ServiceAccount)
		}
		token, err := c.plane.ServiceAccountToken(ctx, namespace, name, controlplane.TokenLifetime)
		if err != nil {
			return err
		}
		return c.identity.WriteTokenKubeconfig(file, server, ask.ServiceAccount, token)
	case ask.User != "":
		return c.identity.WriteUserKubeconfig(file, server, ask.User, ask.Groups...)
	case len(ask.Groups) > 0:
		return fmt.Errorf("groups without a user")
	default:
		return c.identity.WriteAdminKubeconfig(file, server)
	}
}
