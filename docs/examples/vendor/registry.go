// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

var registry = cell.Module("acme.registry", "Registers machines in Acme's registry",
	cell.Config(registryConfig{}),
	cell.EnabledBy(cell.When("a registry is given", []string{"acme-registry"}, func(c registryConfig) bool { return c.AcmeRegistry != "" })),
	cell.ProvidePrivate(newRegistrar),
	cell.Job("register", func(r *registrar) job.Job { return r.machines.Job() }),
	cell.Job("watch", (*registrar).watch),
)

type registryConfig struct {
	AcmeRegistry string `flag:"acme-registry" usage:"URL of the machine registry of Acme; if empty, none"`
}

// registrar knows the API of the registry: PUT and GET /machines/{node}.
type registrar struct {
	url      string
	http     *http.Client
	nodes    stream.Resource[Node]
	machines *reconcile.Queue[machine]
}

type machine struct {
	Node    string `json:"node"`
	Machine string `json:"machine"`
}

// region door

func newRegistrar(c registryConfig, scope outside.Scope, deps reconcile.Deps, nodes stream.Resource[Node]) *registrar {
	r := &registrar{url: c.AcmeRegistry, nodes: nodes}
	r.http = &http.Client{Transport: outside.New(scope, "registry", outside.Limits{QPS: 5}).Transport(http.DefaultTransport, accepted)}
	r.machines = reconcile.NewQueue(deps, "register", r.register)
	return r
}

// accepted is what the registry answers; a plan asks here instead.
func accepted(_ *http.Request, body []byte) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))}
}

// endregion

func (r *registrar) watch() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		for batch := range r.nodes.Changes(ctx) {
			for _, change := range batch.Changes {
				if change.Kind == stream.Upsert {
					r.machines.Add(machine{change.Key.Name, change.Object.Spec.Machine.String()}, k8s.Trigger{Kind: "CiliumNode", Name: change.Key.Name})
				}
			}
		}
		return ctx.Err()
	})
}

func (r *registrar) register(ctx context.Context, m machine) error {
	var known machine
	if err := r.ask(ctx, http.MethodGet, m.Node, nil, &known); err == nil && known == m {
		return nil
	}
	return r.ask(ctx, http.MethodPut, m.Node, m, &known)
}

// maxBody is more than an answer has.
const maxBody = 16 << 20

func (r *registrar) ask(ctx context.Context, method, node string, send, receive any) error {
	body, err := json.Marshal(send)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+"/machines/"+node, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the registry answers %s", resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(receive)
}
