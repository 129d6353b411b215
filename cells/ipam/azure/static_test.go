// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-operator/skep/cells/ipam/azure/armtest"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/seedtest"
)

var egress = map[string]string{"net": "egress"}

// wishing is a node that asks for a public address.
func wishing(id string) *cloudipam.Node {
	n := nodeOf(id)
	n.Spec.IPAM.StaticIPTags = map[string]string{"net": "egress"}
	return n
}

// kinds are the scale sets of machines: stand-alone ones have none.
var kinds = map[string]string{"scale set": "pool1", "alone": ""}

// AZIPAM-27, AZIPAM-28; number 24 of the contract's ipam-azure.md: of the prefixes with all tags one with a free address is chosen; what is
// returned is an address. Then it is returned again, and nothing is changed.
func TestStaticIP(t *testing.T) {
	for name, scaleSet := range kinds {
		t.Run(name, func(t *testing.T) {
			c := armtest.NewCloud("10.240.0.0/16")
			c.Gallery, c.PageSize, c.Settle = true, 1, 3
			full := c.AddPrefix("full", "203.0.113.0/30", map[string]string{"net": "egress", "more": "x"})
			c.FillPrefix(full, 4)
			c.AddPrefix("untagged", "203.0.113.32/28", map[string]string{"net": "other"})
			c.SetPrefix(c.AddPrefix("not-ready", "203.0.113.64/28", egress), "Updating", false)
			c.AddPrefix("chosen", "203.0.113.8/30", map[string]string{"NET": "egress"})
			id := c.Run(armtest.Machine{ScaleSet: scaleSet, Name: "3", Secondary: 1})
			p, _ := inTerm(t, managed, serve(t, c))
			s := readAll(t, p)
			address, err := p.AssignStaticIP(caused(t), wishing(id), s.Instances[id])
			if err != nil || address != "203.0.113.8" || len(c.PublicAddresses()) != 1 {
				t.Fatalf("%q, %v, %v", address, err, c.PublicAddresses())
			}
			changes := c.Changes()
			again, err := p.AssignStaticIP(caused(t), wishing(id), readAll(t, p).Instances[id])
			if err != nil || again != address || c.Changes() != changes {
				t.Errorf("then %q, %v, %d changes", again, err, c.Changes()-changes)
			}
			if p.StaticIP(wishing(id), readAll(t, p).Instances[id]) != "" {
				t.Error("a read shows the address")
			}
			// It stays while addresses for pods are added.
			to, _ := p.FreeInterface(nodeOf(id), readAll(t, p).Instances[id], s.Subnets)
			if err := p.Assign(caused(t), nodeOf(id), readAll(t, p).Instances[id], to, 4); err != nil || len(c.PublicAddresses()) != 1 || c.Removed() != 0 {
				t.Errorf("%v, %v, %d ipConfigurations were removed", err, c.PublicAddresses(), c.Removed())
			}
		})
	}
}

// AZIPAM-28; number 25 of the contract's ipam-azure.md: a public address that the machine has, as one that 1.19 has given it, is taken
// over, whatever it is called.
func TestStaticIPThatExists(t *testing.T) {
	for name, scaleSet := range kinds {
		for _, called := range []string{publicName, "mine"} {
			c := armtest.NewCloud("10.240.0.0/16")
			prefix := c.AddPrefix("p", "203.0.113.0/30", nil)
			id := c.Run(armtest.Machine{ScaleSet: scaleSet, Name: "3", PublicPrefix: prefix, PublicName: called})
			p, _ := inTerm(t, managed, serve(t, c))
			address, err := p.AssignStaticIP(caused(t), wishing(id), readAll(t, p).Instances[id])
			if err != nil || address != "203.0.113.0" || c.Changes() != 0 || len(c.PublicAddresses()) != 1 {
				t.Errorf("%s, %s: %q, %v, %d changes, %v", name, called, address, err, c.Changes(), c.PublicAddresses())
			}
		}
	}
}

// AZIPAM-29: a public address that has failed is removed and made again, if the operator has made it.
func TestStaticIPThatHasFailed(t *testing.T) {
	for name, scaleSet := range kinds {
		c := armtest.NewCloud("10.240.0.0/16")
		full := c.AddPrefix("full", "203.0.113.0/30", egress)
		c.FillPrefix(full, 4)
		c.AddPrefix("second", "203.0.113.8/30", egress)
		ours := c.Run(armtest.Machine{ScaleSet: scaleSet, Name: "3", PublicPrefix: full, PublicName: publicNameOf("3")})
		others := c.Run(armtest.Machine{ScaleSet: scaleSet, Name: "4", PublicPrefix: full, PublicName: "mine"})
		p, _ := inTerm(t, managed, serve(t, c))
		s := readAll(t, p)
		address, err := p.AssignStaticIP(caused(t), wishing(ours), s.Instances[ours])
		if err != nil || address != "203.0.113.8" || !c.HasPublic(ours) || len(c.PublicAddresses()) != 1 {
			t.Errorf("%s: %q, %v, %v", name, address, err, c.PublicAddresses())
		}
		changes, of := c.Changes(), new(cloudipam.NodeError)
		_, err = p.AssignStaticIP(caused(t), wishing(others), s.Instances[others])
		if !errors.As(err, &of) || of.Text != "the primary ipConfiguration has the public address mine, which has no address: repair or remove it" || c.Changes() != changes {
			t.Errorf("%s: %v, %d changes", name, err, c.Changes()-changes)
		}
	}
}

// AZIPAM-29: where Azure refuses an address of a prefix that shows free ones, the error names that, nothing is left on the machine, and
// another prefix is chosen until the first one is tried again after ten minutes.
func TestStaticIPOfPrefixesThatRefuse(t *testing.T) {
	for name, scaleSet := range kinds {
		c := armtest.NewCloud("10.240.0.0/16")
		full := c.AddPrefix("full", "203.0.113.0/29", egress)
		c.FillPrefix(full, 8)
		c.SetPrefix(full, "Succeeded", true)
		id := c.Run(armtest.Machine{ScaleSet: scaleSet, Name: "3"})
		p, _ := inTerm(t, managed, serve(t, c))
		s := readAll(t, p)
		attempt := func(want string) {
			t.Helper()
			of := new(cloudipam.NodeError)
			if _, err := p.AssignStaticIP(caused(t), wishing(id), s.Instances[id]); !errors.As(err, &of) || !strings.HasPrefix(of.Text, want) || c.HasPublic(id) {
				t.Errorf("%s: %v, want %q; left behind: %v", name, err, want, c.HasPublic(id))
			}
		}
		attempt("the public IP prefix has no free address: Azure answers PublicIpPrefixOutOfIpAddresses")
		to, _ := p.FreeInterface(nodeOf(id), readAll(t, p).Instances[id], s.Subnets)
		if err := p.Assign(caused(t), nodeOf(id), readAll(t, p).Instances[id], to, 4); err != nil {
			t.Errorf("%s: addresses for pods are not added: %v", name, err)
		}
		attempt("none of 1 public IP prefixes with the tags net=egress is ready in westeurope and has a free address")
		c.EmptyPrefix(full)
		p.claims.refused[full] = time.Now() // ten minutes have passed
		if address, err := p.AssignStaticIP(caused(t), wishing(id), s.Instances[id]); err != nil || address != "203.0.113.0" {
			t.Errorf("%s: %q, %v", name, address, err)
		}
	}
}

// AZIPAM-20, AZIPAM-27: what users can remedy is in the status of the CiliumNode.
func TestStaticIPRefusals(t *testing.T) {
	for operation, want := range map[string]string{
		armtest.OpPrefixes:      "the operator's identity lacks a permission on Azure: Microsoft.Network/publicIPPrefixes/read",
		armtest.OpUpdateMachine: "the operator's identity lacks a permission on Azure: Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write",
		"none":                  "no public IP prefix of resource group RG has the tags net=egress",
	} {
		c := armtest.NewCloud("10.240.0.0/16")
		if operation != "none" {
			c.AddPrefix("p", "203.0.113.0/30", egress)
		}
		c.Forbidden = func(of, _ string) bool { return of == operation }
		id := c.Run(armtest.Machine{ScaleSet: "pool1", Name: "3"})
		p, _ := inTerm(t, managed, serve(t, c))
		of := new(cloudipam.NodeError)
		if _, err := p.AssignStaticIP(caused(t), wishing(id), readAll(t, p).Instances[id]); !errors.As(err, &of) || !strings.HasPrefix(of.Text, want) {
			t.Errorf("%s: %v", operation, err)
		}
	}
}

// AZIPAM-27: nothing is changed in a plan, and behind the fence.
func TestStaticIPIsGuarded(t *testing.T) {
	for name, scaleSet := range kinds {
		c := armtest.NewCloud("10.240.0.0/16")
		c.AddPrefix("p", "203.0.113.0/30", egress)
		id := c.Run(armtest.Machine{ScaleSet: scaleSet, Name: "3"})
		n := serve(t, c)
		for how, test := range map[string]struct {
			edit func(*outside.Scope)
			want error
		}{
			"behind the fence": {func(s *outside.Scope) { s.Fence.Close() }, leading.ErrFenced},
			"in a plan":        {func(s *outside.Scope) { s.Plan = dryrun.New(time.Minute) }, outside.ErrPlanned},
		} {
			p := providerOf(managed, doorOf(t, test.edit), n)
			if _, err := p.AssignStaticIP(caused(t), wishing(id), readAll(t, p).Instances[id]); !errors.Is(err, test.want) || c.Changes() != 0 {
				t.Errorf("%s, %s: %v, %d changes", name, how, err, c.Changes())
			}
		}
	}
}

// AZIPAM-27: machines that ask at once do not ask a prefix for more than it has.
func TestStaticIPsAtOnce(t *testing.T) {
	c := armtest.NewCloud("10.240.0.0/16")
	c.Settle = 5
	c.AddPrefix("one", "203.0.113.0/30", egress)
	c.AddPrefix("two", "203.0.113.8/30", egress)
	var ids []string
	for k := range 9 {
		ids = append(ids, c.Run(armtest.Machine{ScaleSet: "pool1", Name: fmt.Sprint(k)}))
	}
	p, _ := inTerm(t, managed, serve(t, c))
	s := readAll(t, p)
	var all sync.WaitGroup
	errs := make([]error, len(ids))
	for k, id := range ids {
		all.Go(func() { _, errs[k] = p.AssignStaticIP(caused(t), wishing(id), s.Instances[id]) })
	}
	all.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) != 1 || !strings.HasPrefix(failed[0].Error(), "none of 2 public IP prefixes") || c.Changes() != 8 || len(c.PublicAddresses()) != 8 {
		t.Errorf("%q, %d changes, %v", failed, c.Changes(), c.PublicAddresses())
	}
}

// AZIPAM-27 to AZIPAM-29, over histories with refusals, answers that are lost, changes that fail, prefixes that have less than they show,
// crashes and other leaders: each machine has one public address in the end, and none is left over.
func TestStaticHistories(t *testing.T) {
	for seed := range seedtest.Seeds(t, 60) {
		runStaticHistory(t, seed)
	}
}

func runStaticHistory(t *testing.T, seed uint64) {
	t.Helper()
	r, chance := rand.New(rand.NewPCG(seed, 25)), rand.New(rand.NewPCG(seed, 26)) //nolint:gosec // no secret
	c := armtest.NewCloud("10.240.0.0/24")
	c.Settle = r.IntN(12)
	first := c.AddPrefix("first", "203.0.113.0/29", egress)
	c.FillPrefix(first, r.IntN(9))
	c.SetPrefix(first, "Succeeded", r.IntN(2) == 0)
	c.AddPrefix("second", "203.0.113.8/30", egress)
	var ids []string
	for k := range 3 {
		m := armtest.Machine{ScaleSet: "pool", Name: fmt.Sprint(k)}
		if k == 0 {
			m.ScaleSet = ""
		}
		ids = append(ids, c.Run(m))
	}
	n, stop := c.Network()
	defer stop()
	lead := func() *provider { return providerOf(managed, doorOf(t, func(*outside.Scope) {}), n) }
	instances := readAll(t, lead()).Instances
	var mu sync.Mutex
	faulty, left, cancel := true, -1, func() {} // guarded by mu; left is the number of requests until a crash
	c.Fault = func(operation string) (f armtest.Fault) {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			cancel()
		}
		switch k := chance.IntN(100); {
		case !faulty:
		case k < 5:
			f.Status, f.Code = http.StatusConflict, "OperationNotAllowed"
		case k < 6 && operation != armtest.OpPoll:
			f.Lose = true
		case k < 14:
			f.Fail = true
		}
		return f
	}
	ctx := explain.WithCause(t.Context(), &explain.Cause{Rule: "ipam.azure history"})
	leaders := []*provider{lead(), lead()}
	for range 14 {
		at, id := r.IntN(len(leaders)), ids[r.IntN(len(ids))]
		call, end := context.WithCancel(ctx)
		mu.Lock()
		if left, cancel = -1, end; r.IntN(3) == 0 {
			left = 1 + r.IntN(12)
		}
		mu.Unlock()
		_, _ = leaders[at].AssignStaticIP(call, wishing(id), instances[id])
		end()
		if r.IntN(6) == 0 {
			leaders[at] = lead() // a restart
		}
	}
	mu.Lock()
	faulty, left = false, -1
	mu.Unlock()
	has := map[string]string{}
	for round := 0; len(has) < len(ids); round++ {
		for _, id := range ids {
			if address, err := leaders[0].AssignStaticIP(ctx, wishing(id), instances[id]); err == nil {
				has[id] = address
			} else if round > 40 {
				t.Fatalf("seed %d: %s has no address after %d rounds: %v", seed, id, round, err)
			}
		}
	}
	got, want := slices.Sorted(maps.Keys(c.PublicAddresses())), slices.Sorted(maps.Values(has))
	if !slices.Equal(got, want) || c.Removed() != 0 {
		t.Fatalf("seed %d: the machines have %v, and the prefixes have given %v; %d ipConfigurations were removed", seed, want, got, c.Removed())
	}
}
