// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// provider is Azure. It is safe for concurrent use; no lock is held during a call.
type provider struct {
	params
	config  Config
	subnets atomic.Pointer[subnets] // of the last read, replaced and never changed

	mu      sync.Mutex // guards the fields below
	api     *clients   // nil until subscription, resource group and cloud are known
	failing map[string]string
}

type params struct {
	cell.In

	Config  Config
	Server  *outside.Door
	Network network
	Log     *slog.Logger
	Health  health.Reporter
}

func newProvider(p params) cloudipam.Provider {
	return &provider{params: p, config: p.Config, failing: map[string]string{}}
}

// clients returns the clients, for which it asks the metadata of the operator's own instance if options leave something out.
func (p *provider) clients(ctx context.Context) (*clients, error) {
	p.mu.Lock()
	api := p.api
	p.mu.Unlock()
	if api != nil {
		return api, nil
	}
	s, err := p.settings(ctx)
	if err != nil {
		return nil, err
	}
	if api, err = newClients(s, p.config, pass{server: p.Server, next: p.Network}); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.api = api
	return api, nil
}
