// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

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
	claims  claims

	mu         sync.Mutex // guards the fields below
	api        *clients   // nil until subscription, resource group and cloud are known
	chosenAt   time.Time  // when its credential was chosen
	failing    map[string]string
	unreadable string // what health says of subnets
	isListed   bool   // virtual networks were listed by the last complete read
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
	return &provider{params: p, config: p.Config, failing: map[string]string{}, isListed: true}
}

// credentialInterval is how often a credential is chosen, as long as one that comes first cannot be used.
const credentialInterval = time.Minute

// clients returns the clients, for which it asks the metadata of the operator's own instance if options leave something out.
func (p *provider) clients(ctx context.Context) (*clients, error) {
	p.mu.Lock()
	api, chosen := p.api, p.chosenAt
	p.mu.Unlock()
	if api != nil && (!api.identity.isSecond || time.Since(chosen) < credentialInterval) {
		return api, nil
	}
	made, err := p.newClients(ctx, api)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.api, p.chosenAt = made, time.Now()
	return made, nil
}

// newClients returns clients with the first credential that can be used: those that are, if that has not changed.
func (p *provider) newClients(ctx context.Context, are *clients) (*clients, error) {
	to := pass{server: p.Server, next: p.Network}
	if are == nil {
		s, err := p.settings(ctx)
		if err != nil {
			return nil, err
		}
		return newClients(s, p.config, to)
	}
	made, err := newClients(are.settings, p.config, to)
	if err != nil || made.identity.source == are.identity.source {
		return are, nil //nolint:nilerr // what was used stays
	}
	p.Log.Info("another credential can be used", "credential", made.identity.source, "before", are.identity.source)
	return made, nil
}
