// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/skep-operator/skep/cells/ipam/azure/armtest"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// AZIPAM-15 to AZIPAM-18 and AZIPAM-24, over histories with conflicts, refusals, answers that are lost, changes that fail half-way, lists
// that are out of date, crashes and two leaders: no machine gets more addresses than it needs, none loses one.
func TestHistories(t *testing.T) {
	for seed := range seedtest.Seeds(t, 120) {
		runHistory(t, seed)
	}
}

const (
	historyMachines = 3
	historyNeed     = 8
)

func runHistory(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 15))
	c := armtest.NewCloud("10.240.0.0/24")
	c.PageSize, c.Settle, c.Stale = 1+r.IntN(3), r.IntN(20), r.IntN(8)
	faulty := true
	chance := rand.New(rand.NewPCG(seed, 16))
	c.Fault = func(operation string) (f armtest.Fault) {
		switch n := chance.IntN(100); {
		case !faulty:
		case n < 5:
			f.Status, f.Code = http.StatusConflict, "OperationNotAllowed"
		case n < 9:
			f.Status, f.Code = http.StatusTooManyRequests, "TooManyRequests"
		case n < 10 && operation != armtest.OpPoll:
			f.Lose = true
		case n < 16:
			f.Fail = true
		}
		return f
	}
	network, stop := c.Network()
	defer stop()
	var nodes []*cloudipam.Node
	for k := range historyMachines {
		m := armtest.Machine{ScaleSet: "pool", Name: fmt.Sprint(k)}
		if k == 0 {
			m.ScaleSet = ""
		}
		nodes = append(nodes, nodeOf(c.Run(m)))
	}
	fence := leading.Unfenced()
	defer fence.Close()
	lead := func() *provider {
		return providerOf(managed, outside.New(outside.Scope{
			Module: cell.ModuleInfo{ID: "ipam.azure", Term: "leader"}, Log: slog.New(slog.DiscardHandler),
			Health: health.NewTree().Reporter("ipam.azure"), Fence: fence, Book: explain.NewHistory(),
		}, "azure", outside.Limits{QPS: 1e6, Burst: 1e6}), network)
	}
	leaders := []*provider{lead(), lead()}
	ctx := explain.WithCause(t.Context(), &explain.Cause{Rule: "ipam.azure history"})
	step := func(p *provider, n *cloudipam.Node) {
		s, err := p.Read(ctx)
		if err != nil {
			return
		}
		i := s.Instances[n.InstanceID]
		if i == nil {
			t.Fatalf("seed %d: %s is not in a complete read", seed, n.InstanceID)
		}
		need := historyNeed - len(p.Addresses(n, i))
		to, ok := p.FreeInterface(n, i, s.Subnets)
		if need <= 0 || !ok {
			return
		}
		call, cancel := context.WithCancel(ctx)
		defer cancel()
		if r.IntN(10) == 0 {
			cancel() // a crash before the call
		}
		_ = p.Assign(call, n, i, to, min(need, to.Count))
	}
	for range 12 {
		at := r.IntN(len(leaders))
		if r.IntN(6) == 0 {
			leaders[at] = lead() // a restart
		}
		step(leaders[at], nodes[r.IntN(len(nodes))])
	}
	faulty = false
	for round := 0; ; round++ {
		done := true
		for _, n := range nodes {
			step(leaders[0], n)
		}
		s, err := leaders[0].Read(ctx)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, n := range nodes {
			switch has := len(leaders[0].Addresses(n, s.Instances[n.InstanceID])); {
			case has > historyNeed:
				t.Fatalf("seed %d: %s has %d addresses and needs %d", seed, n.InstanceID, has, historyNeed)
			case has < historyNeed:
				done = false
			}
		}
		if done {
			break
		}
		if round > 40 {
			t.Fatalf("seed %d: not all machines have their addresses after %d rounds", seed, round)
		}
	}
	if c.Removed() != 0 {
		t.Fatalf("seed %d: %d ipConfigurations were removed", seed, c.Removed())
	}
}

// AZIPAM-18: what another writer has changed since it was read is not overwritten.
func TestChangesOfOthers(t *testing.T) {
	for name, scaleSet := range map[string]string{"scale set": "pool1", "alone": ""} {
		c := armtest.NewCloud("10.240.0.0/16")
		id := c.Run(armtest.Machine{ScaleSet: scaleSet, Name: "3"})
		network := serve(t, c)
		fence := leading.Unfenced()
		t.Cleanup(fence.Close)
		p := providerOf(managed, outside.New(outside.Scope{
			Module: cell.ModuleInfo{ID: "ipam.azure", Term: "leader"}, Log: slog.New(slog.DiscardHandler),
			Health: health.NewTree().Reporter("ipam.azure"), Fence: fence, Book: explain.NewHistory(),
		}, "azure", outside.Limits{QPS: 1e6, Burst: 1e6}), touching{network, c, id})
		s, err := p.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		to, _ := p.FreeInterface(nodeOf(id), s.Instances[id], s.Subnets)
		ctx := explain.WithCause(t.Context(), &explain.Cause{Rule: "ipam.azure test"})
		err = p.Assign(ctx, nodeOf(id), s.Instances[id], to, 4)
		if of := new(refusal); !errors.As(err, &of) || of.status != http.StatusPreconditionFailed || c.Changes() != 0 {
			t.Errorf("%s: %v, %d changes", name, err, c.Changes())
		}
	}
}

// touching changes the machine before each PUT.
type touching struct {
	network
	cloud *armtest.Cloud
	id    string
}

func (n touching) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPut {
		n.cloud.Touch(n.id)
	}
	return n.network.RoundTrip(req)
}
