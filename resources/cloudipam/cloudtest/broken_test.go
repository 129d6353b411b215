// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudtest

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/outside"
)

// brokenEnv names the broken provider that a process checks.
const brokenEnv = "SKEP_BROKEN_PROVIDER"

// Every promise that a provider breaks fails the check of that promise.
func TestCheckNotices(t *testing.T) {
	if name := os.Getenv(brokenEnv); name != "" {
		Check(t, func(t *testing.T) Subject {
			s := subject(t)
			whole := s.New
			s.New = func(d *outside.Door) cloudipam.Provider {
				p := whole(d).(*provider)
				return broken[name].edit(p)
			}
			if broken[name].promise == "Lasting" {
				s.Lag = whole(nil).(*provider).cloud.Freeze
			}
			return s
		})
		return
	}
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.Command(os.Args[0], "-test.run=^TestCheckNotices$")
			command.Env = append(os.Environ(), brokenEnv+"="+name)
			output, err := command.CombinedOutput()
			if err == nil || !regexp.MustCompile(`--- FAIL: TestCheckNotices/`+b.promise+` `).Match(output) {
				t.Errorf("%v, want a failure of %s:\n%s", err, b.promise, output)
			}
		})
	}
}

// broken are providers that break a promise.
var broken = map[string]struct {
	promise string
	edit    func(*provider) cloudipam.Provider
}{
	"reads without the door":           {"Guarded", func(p *provider) cloudipam.Provider { return unguarded{p} }},
	"an error of a call is ignored":    {"Complete", func(p *provider) cloudipam.Provider { return deaf{p} }},
	"one instance is missing":          {"Complete", func(p *provider) cloudipam.Provider { return partial{p} }},
	"all instances, whatever is asked": {"Fresh", func(p *provider) cloudipam.Provider { return lavish{p} }},
	"used addresses are cleared":       {"Pure", func(p *provider) cloudipam.Provider { return clearing{p} }},
	"addresses of no interface":        {"Pure", func(p *provider) cloudipam.Provider { return anonymous{p} }},
	"no limits":                        {"Pure", func(p *provider) cloudipam.Provider { return limitless{p} }},
	"room in a subnet without any":     {"Pure", func(p *provider) cloudipam.Provider { return crowded{p} }},
	"slots that stay empty":            {"Exact", func(p *provider) cloudipam.Provider { return empty{p} }},
	"one address too many":             {"Exact", func(p *provider) cloudipam.Provider { return generous{p} }},
	"no subnet with an error":          {"Whole", func(p *provider) cloudipam.Provider { return silent{p} }},
	"surplus of the first interface":   {"Idempotent", func(p *provider) cloudipam.Provider { return first{p} }},
	"changes that lists do not show":   {"Lasting", func(p *provider) cloudipam.Provider { return p }},
	"a public address for each call":   {"Static", func(p *provider) cloudipam.Provider { return wasteful{p} }},
	"no interface for a prefix":        {"IPv6", func(p *provider) cloudipam.Provider { return familiar{p} }},
	"surplus of the last interface":    {"Idempotent", func(p *provider) cloudipam.Provider { return last{p} }},
}

type unguarded struct{ *provider }

func (p unguarded) ReadInstances(ctx context.Context, ids []string) (map[string]*cloudipam.Instance, error) {
	list, _, err := p.cloud.get(ctx, OpGet, ids)
	return instancesOf(list), err
}

type wasteful struct{ *provider }

func (p wasteful) AssignStaticIP(ctx context.Context, n *cloudipam.Node, i *cloudipam.Instance) (string, error) {
	p.cloud.unpublish(i.ID)
	i.Detail = detail{}
	return p.provider.AssignStaticIP(ctx, n, i)
}

// unpublish takes the public address off an instance.
func (c *Cloud) unpublish(instance string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[instance].public = ""
}

type familiar struct{ *provider }

func (familiar) IPv6Interface(*cloudipam.Node, *cloudipam.Instance, map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	return cloudipam.Candidate{}, false
}

type deaf struct{ *provider }

func (p deaf) Read(ctx context.Context) (*cloudipam.State, error) {
	s, err := p.provider.Read(ctx)
	if err != nil && ctx.Err() == nil {
		return &cloudipam.State{}, nil
	}
	return s, err
}

type partial struct{ *provider }

func (p partial) Read(ctx context.Context) (*cloudipam.State, error) {
	s, err := p.provider.Read(ctx)
	if err == nil {
		delete(s.Instances, "i-2")
	}
	return s, err
}

type lavish struct{ *provider }

func (p lavish) ReadInstances(ctx context.Context, _ []string) (map[string]*cloudipam.Instance, error) {
	return p.provider.ReadInstances(ctx, []string{"i-1", "i-2"})
}

type clearing struct{ *provider }

func (p clearing) Releasable(n *cloudipam.Node, i *cloudipam.Instance, isUsed func(string) bool, count int) cloudipam.Surplus {
	surplus := p.provider.Releasable(n, i, isUsed, count)
	for at := range i.Interfaces {
		_ = slices.DeleteFunc(i.Interfaces[at].Addresses, isUsed)
	}
	return surplus
}

type anonymous struct{ *provider }

func (p anonymous) Addresses(n *cloudipam.Node, i *cloudipam.Instance) map[string]cloudipam.Address {
	all := p.provider.Addresses(n, i)
	for a := range all {
		all[a] = cloudipam.Address{}
	}
	return all
}

type limitless struct{ *provider }

func (p limitless) Limits(n *cloudipam.Node, i *cloudipam.Instance) (cloudipam.Limits, error) {
	l, err := p.provider.Limits(n, i)
	l.Capacity, l.Interfaces = 0, 0
	return l, err
}

type crowded struct{ *provider }

func (p crowded) FreeInterface(*cloudipam.Node, *cloudipam.Instance, map[string]cloudipam.Subnet) (cloudipam.Candidate, bool) {
	return cloudipam.Candidate{Interface: "nic-1", Subnet: "subnet-1", Count: 8}, true
}

type empty struct{ *provider }

func (p empty) Limits(n *cloudipam.Node, i *cloudipam.Instance) (cloudipam.Limits, error) {
	l, err := p.provider.Limits(n, i)
	l.EmptySlots = 2
	return l, err
}

type generous struct{ *provider }

func (p generous) Assign(ctx context.Context, n *cloudipam.Node, i *cloudipam.Instance, to cloudipam.Candidate, count int) error {
	return p.provider.Assign(ctx, n, i, to, count+1)
}

type silent struct{ *provider }

func (p silent) CreateInterface(ctx context.Context, n *cloudipam.Node, i *cloudipam.Instance, subnets map[string]cloudipam.Subnet, count int) (cloudipam.Created, error) {
	made, err := p.provider.CreateInterface(ctx, n, i, subnets, count)
	if err != nil {
		made.Subnet = ""
	}
	return made, err
}

// first and last take the addresses of an interface whatever others have.
type (
	first struct{ *provider }
	last  struct{ *provider }
)

func (p first) Releasable(n *cloudipam.Node, i *cloudipam.Instance, isUsed func(string) bool, count int) cloudipam.Surplus {
	return p.ofAny(n, i.Interfaces, isUsed, count)
}

func (p last) Releasable(n *cloudipam.Node, i *cloudipam.Instance, isUsed func(string) bool, count int) cloudipam.Surplus {
	reversed := slices.Clone(i.Interfaces)
	slices.Reverse(reversed)
	return p.ofAny(n, reversed, isUsed, count)
}

func (p *provider) ofAny(n *cloudipam.Node, interfaces []cloudipam.Interface, isUsed func(string) bool, count int) cloudipam.Surplus {
	for _, of := range interfaces {
		surplus := p.Releasable(n, &cloudipam.Instance{Interfaces: []cloudipam.Interface{of}}, isUsed, count)
		if len(surplus.Addresses) > 0 {
			return surplus
		}
	}
	return cloudipam.Surplus{}
}
