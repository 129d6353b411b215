// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/kubernetes"

	"github.com/skep-operator/skep/cmd/devcluster/internal/admission"
	"github.com/skep-operator/skep/cmd/devcluster/internal/controlplane"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

// webhooks are the admission webhooks of a devcluster.
type webhooks struct {
	server    *admission.Server
	registrar *admission.Registrar
}

// serveAdmission starts the webhook server; the API server does not ask it yet.
func (c *Cluster) serveAdmission(ctx context.Context) error {
	if c.plane == nil {
		return nil
	}
	pair, err := c.identity.CA.Server("admission")
	if err != nil {
		return err
	}
	cert, err := pair.TLS()
	if err != nil {
		return err
	}
	config, err := c.identity.ClientConfig(c.plane.URL(), controlplane.LoaderUser, controlplane.MastersGroup)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	server, err := admission.Serve(cert, c.log)
	if err != nil {
		return err
	}
	c.webhooks = &webhooks{server: server}
	c.webhooks.registrar, err = admission.NewRegistrar(ctx, server, client, c.identity.CA.Pair().Cert)
	return err
}

func (c *Cluster) routeWebhooks(handle func(string, func(*http.Request) (any, error))) {
	webhook := func(pattern string, h func(*http.Request) (any, error)) {
		handle(pattern, func(r *http.Request) (any, error) {
			if c.webhooks == nil {
				return nil, errors.New("this devcluster is an etcd without a control plane: it has no webhooks")
			}
			return h(r)
		})
	}
	webhook("GET /webhooks", func(*http.Request) (any, error) { return c.webhooks.server.Rules(), nil })
	webhook("POST /webhooks", asking(func(r *http.Request, ask control.Admission) (any, error) {
		return c.webhooks.registrar.Add(r.Context(), ask)
	}))
	webhook("DELETE /webhooks/{id}", func(r *http.Request) (any, error) {
		return nil, c.webhooks.registrar.Remove(r.Context(), r.PathValue("id"))
	})
}
